"""Checkpoints of Hugging Face that tests make: tiny, with random weights, without torch."""

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

_HIDDEN: Final = 64
_INNER: Final = 128
_HEADS: Final = 4
_KV_HEADS: Final = 2
_LAYERS: Final = 2
_SPECIAL: Final = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
_TEMPLATE: Final = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
_CLASSES: Final = {"qwen2": "Qwen2ForCausalLM", "llama": "LlamaForCausalLM"}

Tensors = Mapping[str, npt.NDArray[np.float16]]


def write_checkpoint(folder: Path, model_type: str = "qwen2") -> Path:
    """Write a decoder of two layers with its tokenizer and chat template."""
    folder.mkdir(parents=True)
    tokenizer = _tokenizer()
    tokenizer.save(str(folder / "tokenizer.json"))
    size = tokenizer.get_vocab_size()
    _write_json(folder / "config.json", _config(model_type, size))
    _write_json(folder / "generation_config.json", {"do_sample": False, "eos_token_id": 2})
    tokenizer_config = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": _SPECIAL[2]}
    tokenizer_config |= {"pad_token": _SPECIAL[0], "chat_template": _TEMPLATE}
    tokenizer_config |= {"model_max_length": 512}
    _write_json(folder / "tokenizer_config.json", tokenizer_config)
    write_safetensors(folder / "model.safetensors", _tensors(model_type, size))
    return folder


def write_safetensors(path: Path, tensors: Tensors) -> None:
    """The format: the length of a JSON header, the header, and all numbers."""
    header, start = {}, 0
    for name, tensor in tensors.items():
        offsets = [start, start + tensor.nbytes]
        header[name] = {"dtype": "F16", "shape": list(tensor.shape), "data_offsets": offsets}
        start += tensor.nbytes
    head = json.dumps({**header, "__metadata__": {"format": "pt"}}).encode()
    numbers = b"".join(tensor.tobytes() for tensor in tensors.values())
    path.write_bytes(struct.pack("<Q", len(head)) + head + numbers)


def _tokenizer() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=320,
        special_tokens=list(_SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(["one two three four five six seven eight nine"] * 4, trainer)
    return tokenizer


def _config(model_type: str, vocab_size: int) -> dict[str, Any]:
    config: dict[str, Any] = {"model_type": model_type, "architectures": [_CLASSES[model_type]]}
    config |= {"vocab_size": vocab_size, "hidden_size": _HIDDEN, "intermediate_size": _INNER}
    config |= {"num_hidden_layers": _LAYERS, "num_attention_heads": _HEADS}
    config |= {"num_key_value_heads": _KV_HEADS, "max_position_embeddings": 512}
    config |= {"tie_word_embeddings": False, "hidden_act": "silu", "rms_norm_eps": 1e-6}
    return config | {"bos_token_id": 1, "eos_token_id": 2, "torch_dtype": "float16"}


def _tensors(model_type: str, vocab_size: int) -> Tensors:
    random = np.random.default_rng(1)

    def weights(*shape: int) -> npt.NDArray[np.float16]:
        return random.normal(0, 0.08, shape).astype(np.float16)

    kv = _HIDDEN // _HEADS * _KV_HEADS
    rows = {"q": _HIDDEN, "k": kv, "v": kv}
    tensors = {"model.embed_tokens.weight": weights(vocab_size, _HIDDEN)}
    for layer in range(_LAYERS):
        at = f"model.layers.{layer}"
        for name, size in rows.items():
            tensors[f"{at}.self_attn.{name}_proj.weight"] = weights(size, _HIDDEN)
            if model_type == "qwen2":
                tensors[f"{at}.self_attn.{name}_proj.bias"] = weights(size)
        tensors[f"{at}.self_attn.o_proj.weight"] = weights(_HIDDEN, _HIDDEN)
        for name in ("gate", "up"):
            tensors[f"{at}.mlp.{name}_proj.weight"] = weights(_INNER, _HIDDEN)
        tensors[f"{at}.mlp.down_proj.weight"] = weights(_HIDDEN, _INNER)
        for name in ("input_layernorm", "post_attention_layernorm"):
            tensors[f"{at}.{name}.weight"] = np.ones(_HIDDEN, np.float16)
    tensors["model.norm.weight"] = np.ones(_HIDDEN, np.float16)
    tensors["lm_head.weight"] = weights(vocab_size, _HIDDEN)
    return tensors


def _write_json(path: Path, content: object) -> None:
    path.write_text(json.dumps(content), encoding="utf-8")
