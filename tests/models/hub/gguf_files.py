"""Writes GGUF files with random weights, and the tokenizer and template of the reference model."""

import json
from pathlib import Path

import numpy as np
from gguf import GGUFWriter, TokenType

from tests.models.hub.models import TINY_CHAT

_HIDDEN, _HEADS, _KV_HEADS, _HEAD, _INNER = 32, 4, 2, 8, 64


def write_gguf(path: Path, architecture: str = "qwen3", tokenizer: str = "gpt2") -> Path:
    writer = GGUFWriter(path, architecture)
    num_tokens = _write_tokenizer(writer, tokenizer)
    writer.add_block_count(1)
    writer.add_context_length(512)
    writer.add_embedding_length(_HIDDEN)
    writer.add_feed_forward_length(_INNER)
    writer.add_head_count(_HEADS)
    writer.add_head_count_kv(_KV_HEADS)
    writer.add_key_length(_HEAD)
    writer.add_value_length(_HEAD)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(10000.0)
    writer.add_rope_dimension_count(_HEAD)
    writer.add_file_type(1)
    writer.add_vocab_size(num_tokens)
    _write_weights(writer, num_tokens)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _write_tokenizer(writer: GGUFWriter, kind: str) -> int:
    """Returns the size of the vocabulary."""
    tokenizer = json.loads((TINY_CHAT / "tokenizer.json").read_text())
    texts = {id_: text for text, id_ in tokenizer["model"]["vocab"].items()}
    special = {each["id"]: each["content"] for each in tokenizer["added_tokens"]}
    texts |= special
    merges = tokenizer["model"]["merges"]
    writer.add_tokenizer_model(kind)
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list([texts[id_] for id_ in range(len(texts))])
    writer.add_token_types(
        [TokenType.CONTROL if id_ in special else TokenType.NORMAL for id_ in range(len(texts))]
    )
    writer.add_token_merges([each if isinstance(each, str) else " ".join(each) for each in merges])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_pad_token_id(0)
    writer.add_chat_template((TINY_CHAT / "chat_template.jinja").read_text())
    return len(texts)


def _write_weights(writer: GGUFWriter, num_tokens: int) -> None:
    random = np.random.default_rng(1)
    shapes = {"token_embd": (num_tokens, _HIDDEN), "output": (num_tokens, _HIDDEN)}
    shapes |= {"blk.0.attn_q": (_HEADS * _HEAD, _HIDDEN)}
    shapes |= {"blk.0.attn_k": (_KV_HEADS * _HEAD, _HIDDEN)}
    shapes |= {"blk.0.attn_v": (_KV_HEADS * _HEAD, _HIDDEN)}
    shapes |= {"blk.0.attn_output": (_HIDDEN, _HEADS * _HEAD), "blk.0.ffn_gate": (_INNER, _HIDDEN)}
    shapes |= {"blk.0.ffn_up": (_INNER, _HIDDEN), "blk.0.ffn_down": (_HIDDEN, _INNER)}
    norms = {"output": _HIDDEN, "blk.0.attn": _HIDDEN, "blk.0.ffn": _HIDDEN}
    norms |= {"blk.0.attn_q": _HEAD, "blk.0.attn_k": _HEAD}
    for name, shape in shapes.items():
        weights = random.standard_normal(shape) * 0.05
        writer.add_tensor(f"{name}.weight", weights.astype(np.float16))
    for name, size in norms.items():
        writer.add_tensor(f"{name}_norm.weight", np.ones(size, dtype=np.float32))
