"""Model folders with random weights, laid out as exports by optimum-intel are.

The tokenizer is that of the reference model. `decoder` writes the graphs.

A small folder loads in a fraction of a second. The models answer with meaningless words, the same
each time, and never end by themselves: an answer always has exactly `max_tokens` tokens.
"""

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import openvino
from tokenizers import Tokenizer

from tests.random_models.decoder import DecoderShape, decoder

_TINY_CHAT = Path(__file__).resolve().parents[2] / "models" / "tiny-chat"
_TOKENIZER_FILES = (
    *("tokenizer.json", "special_tokens_map.json", "generation_config.json"),
    *("openvino_tokenizer.xml", "openvino_tokenizer.bin"),
    *("openvino_detokenizer.xml", "openvino_detokenizer.bin"),
)
# Byte-level BPE writes a space so.
_IS_WORD = re.compile("\u0120[A-Za-z]{3,}")
_CLASSES = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM"}
# Cut down to what plain conversations need.
_CHATML = """\
{%- for message in messages -%}
    {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{- '<|im_start|>assistant\\n' -}}
{%- endif -%}
"""

_LLAMA = DecoderShape(
    model_type="llama",
    vocab_size=3072,
    hidden_size=64,
    intermediate_size=160,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    tie_word_embeddings=False,
    max_position_embeddings=2_048,
    rope_theta=500_000.0,
    rms_norm_eps=1e-5,
)
_QWEN2 = DecoderShape(
    model_type="qwen2",
    vocab_size=3072,
    hidden_size=64,
    intermediate_size=192,
    num_hidden_layers=3,
    num_attention_heads=8,
    num_key_value_heads=2,
    tie_word_embeddings=True,
    max_position_embeddings=4_096,
)


def write_llama_folder(path: Path) -> Path:
    """Write a small Llama 3, with a head of its own."""
    return write_folder(_LLAMA, path)


def write_qwen2_folder(path: Path) -> Path:
    """Write a small Qwen2: tied head, biased Q, K and V."""
    return write_folder(_QWEN2, path)


def without_tokenizer_json(folder: Path) -> Path:
    """Leave only the OpenVINO tokenizer, like folders of models with a slow tokenizer."""
    (folder / "tokenizer.json").unlink()
    return folder


# Gets the shape, the ids of tokens that are never chosen, and the folder.
WriteWeights = Callable[[DecoderShape, list[int], Path], None]


def _write_graph(shape: DecoderShape, quiet_ids: list[int], folder: Path) -> None:
    openvino.save_model(decoder(shape, quiet_ids), folder / "openvino_model.xml")


def write_folder(
    shape: DecoderShape, folder: Path, write_weights: WriteWeights = _write_graph
) -> Path:
    """Write the model. `folder` must not exist; it appears whole or not at all."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as scratch:
        unfinished = Path(scratch, folder.name)
        unfinished.mkdir()
        _write_files(shape, unfinished)
        write_weights(shape, _quiet_ids(shape), unfinished)
        return unfinished.rename(folder)


def _write_files(shape: DecoderShape, folder: Path) -> None:
    for name in _TOKENIZER_FILES:
        shutil.copy(_TINY_CHAT / name, folder)
    tokenizer_config = json.loads((_TINY_CHAT / "tokenizer_config.json").read_text())
    length = {"model_max_length": shape.max_position_embeddings}
    _write_json(
        folder / "tokenizer_config.json", tokenizer_config | length | {"chat_template": _CHATML}
    )
    ends = json.loads((_TINY_CHAT / "generation_config.json").read_text())
    architecture = {"architectures": [_CLASSES[shape.model_type]], "head_dim": shape.head_size}
    _write_json(folder / "config.json", asdict(shape) | architecture | ends)


def _quiet_ids(shape: DecoderShape) -> list[int]:
    """Return all but plain words: special tokens, bytes, and what the tokenizer lacks."""
    words = {id_ for _, id_ in plain_words()}
    return [id_ for id_ in range(shape.vocab_size) if id_ not in words]


def plain_words() -> list[tuple[str, int]]:
    """Words of ASCII letters that are one token behind a space, with their ids."""
    tokenizer = Tokenizer.from_file(str(_TINY_CHAT / "tokenizer.json"))
    entries = sorted(tokenizer.get_vocab().items())
    return [(text[1:], id_) for text, id_ in entries if _IS_WORD.fullmatch(text)]


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2), encoding="utf-8")
