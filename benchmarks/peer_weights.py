"""The weights of `decoder` in the formats of other engines: safetensors (bfloat16), GGUF (Q8_0).

A scale that is a power of two makes every weight of the three formats exactly the same.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import gguf
import numpy as np
import numpy.typing as npt

from tests.random_models.decoder import DecoderShape, Drawn, RandomWeights

Weight = Drawn | npt.NDArray[np.float32]
# A scale, and 32 whole numbers of a row.
_Q8_0 = np.dtype([("scale", "<f2"), ("whole", "i1", 32)])
_KIND = gguf.GGMLQuantizationType.Q8_0


def write_checkpoint(shape: DecoderShape, quiet_ids: list[int], folder: Path) -> None:
    """Write `model.safetensors` and `model.gguf`, of a qwen2 with a tied head."""
    weights = dict(_weights(shape, quiet_ids))
    _write_safetensors(weights, folder / "model.safetensors")
    _write_gguf(shape, weights, folder)


def _weights(shape: DecoderShape, quiet_ids: list[int]) -> Iterator[tuple[str, Weight]]:
    """All weights by the names of transformers, drawn in the order of `decoder`."""
    random, hidden = RandomWeights(shape.initializer_range), shape.hidden_size
    ones = np.ones(hidden, np.float32)
    yield "model.embed_tokens.weight", random.draw(shape.vocab_size, hidden, quiet_ids)
    for index in range(shape.num_hidden_layers):
        layer = f"model.layers.{index}"
        for name, num_heads in (
            ("q", shape.num_attention_heads),
            ("k", shape.num_key_value_heads),
            ("v", shape.num_key_value_heads),
        ):
            size = num_heads * shape.head_size
            yield f"{layer}.self_attn.{name}_proj.weight", random.draw(size, hidden)
            yield f"{layer}.self_attn.{name}_proj.bias", random.bias(size).reshape(-1)
        yield f"{layer}.self_attn.o_proj.weight", random.draw(hidden, hidden)
        yield f"{layer}.mlp.gate_proj.weight", random.draw(shape.intermediate_size, hidden)
        yield f"{layer}.mlp.up_proj.weight", random.draw(shape.intermediate_size, hidden)
        yield f"{layer}.mlp.down_proj.weight", random.draw(hidden, shape.intermediate_size)
        yield f"{layer}.input_layernorm.weight", ones
        yield f"{layer}.post_attention_layernorm.weight", ones
    yield "model.norm.weight", ones


def _write_safetensors(weights: dict[str, Weight], file: Path) -> None:
    header, end = {"__metadata__": {"format": "pt"}}, 0
    for name, weight in weights.items():
        shape = (weight.whole if isinstance(weight, Drawn) else weight).shape
        begin, end = end, end + 2 * int(np.prod(shape))
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": (begin, end)}  # type: ignore[dict-item]
    head = json.dumps(header).encode()
    with file.open("wb") as output:
        output.write(len(head).to_bytes(8, "little") + head)
        for weight in weights.values():
            output.write((_floats(weight).view(np.uint32) >> 16).astype("<u2").tobytes())


def _floats(weight: Weight) -> npt.NDArray[np.float32]:
    if isinstance(weight, Drawn):
        return weight.whole.astype(np.float32) * weight.scale.astype(np.float32)
    return weight


def _write_gguf(shape: DecoderShape, weights: dict[str, Weight], folder: Path) -> None:
    writer = gguf.GGUFWriter(folder / "model.gguf", "qwen2")
    writer.add_context_length(shape.max_position_embeddings)
    writer.add_embedding_length(shape.hidden_size)
    writer.add_block_count(shape.num_hidden_layers)
    writer.add_feed_forward_length(shape.intermediate_size)
    writer.add_head_count(shape.num_attention_heads)
    writer.add_head_count_kv(shape.num_key_value_heads)
    writer.add_rope_freq_base(shape.rope_theta)
    writer.add_layer_norm_rms_eps(shape.rms_norm_eps)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q8_0)
    _add_tokenizer(writer, shape.vocab_size, folder)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.QWEN2, shape.num_hidden_layers)
    for name, weight in weights.items():
        known = names.get_name(name, (".weight", ".bias")) or name
        if isinstance(weight, Drawn):
            writer.add_tensor(known, _blocks(weight), raw_dtype=_KIND)
        else:
            writer.add_tensor(known, weight)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _blocks(weight: Drawn) -> npt.NDArray[np.uint8]:
    rows, columns = weight.whole.shape
    blocks = np.empty((rows, columns // 32), _Q8_0)
    blocks["scale"] = weight.scale
    blocks["whole"] = weight.whole.reshape(rows, -1, 32)
    return blocks.view(np.uint8).reshape(rows, -1)


def _add_tokenizer(writer: gguf.GGUFWriter, vocab_size: int, folder: Path) -> None:
    """The tokenizer of the folder, filled up with tokens that no text has."""
    known = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    special = {token["content"] for token in known["added_tokens"]}
    ids = known["model"]["vocab"] | {t["content"]: t["id"] for t in known["added_tokens"]}
    tokens = [f"[PAD{id_}]" for id_ in range(vocab_size)]
    kinds = [gguf.TokenType.UNUSED] * vocab_size
    for token, id_ in ids.items():
        tokens[id_] = token
        kinds[id_] = gguf.TokenType.CONTROL if token in special else gguf.TokenType.NORMAL
    merges = known["model"]["merges"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")  # digits alone, and then words as GPT-2 has them
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_token_merges([m if isinstance(m, str) else " ".join(m) for m in merges])
    config = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    writer.add_chat_template(config["chat_template"])
    writer.add_eos_token_id(ids[config["eos_token"]])
    writer.add_pad_token_id(ids[config["pad_token"]])
    writer.add_add_bos_token(False)
