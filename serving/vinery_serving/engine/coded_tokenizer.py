"""Lets GenAI's pipeline for vision models, which takes text alone, take token ids. The folder's
copy gets another tokenizer, which reads ids written as characters, and knows the few texts that
GenAI puts around pictures."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import openvino as ov
import openvino_tokenizers
from openvino import opset13 as op
from openvino.opset15 import string_tensor_unpack

from vinery_serving.engine.prefix_cache import TokenArray

TOKENIZER: Final = "openvino_tokenizer.xml"
_NUM_CHARS: Final = 8  # of an id
_BITS: Final = 6  # of a character
_FIRST: Final = ord("0")  # the 64 characters from here to `o` do not begin any of GenAI's texts


def coded(token_ids: TokenArray) -> str:
    shifts = np.arange(_NUM_CHARS, dtype=np.int64) * _BITS
    digits = (token_ids[:, None] >> shifts) & (2**_BITS - 1)
    return (digits + _FIRST).astype(np.uint8).tobytes().decode("ascii")


def write_tokenizer(folder: Path, target: Path, literals: Mapping[str, int | None]) -> None:
    """Write the tokenizer of coded ids to `target`, in place of a link. `literals` are the ids of
    the texts that stay texts; a text without an id is left out. Raises RuntimeError."""
    core = ov.Core()
    core.add_extension(str(openvino_tokenizers._ext_path))
    graph = _graph(literals)
    for name, value in core.read_model(str(folder / TOKENIZER)).get_rt_info().items():
        if name != "chat_template":  # GenAI would render the template to inspect it
            graph.set_rt_info(value, name)
    for file in (target / TOKENIZER, (target / TOKENIZER).with_suffix(".bin")):
        file.unlink(missing_ok=True)
    ov.save_model(graph, str(target / TOKENIZER), compress_to_fp16=False)


def _graph(literals: Mapping[str, int | None]) -> Any:
    factory = openvino_tokenizers._get_factory()
    text = op.parameter([-1], ov.Type.string, name="string_input")
    unpacked = string_tensor_unpack(text)
    for literal, id_ in literals.items():
        pattern = literal.replace("|", r"\|")
        code = "" if id_ is None else coded(np.array([id_]))
        inputs = [*unpacked.outputs(), _chars(pattern), _chars(code)]
        unpacked = factory.create("RegexNormalization", inputs, {"global_replace": True})
    ids = _decoded(unpacked.output(2))
    mask = op.broadcast(op.constant(np.int64(1)), op.shape_of(ids))
    ids.output(0).set_names({"input_ids"})
    mask.output(0).set_names({"attention_mask"})
    return ov.Model([op.result(ids), op.result(mask)], [text], "tokenizer")


def _decoded(chars: Any) -> Any:
    """The ids, int64 (1, num_tokens), of characters, uint8 (num_chars,)."""
    digits = op.subtract(op.convert(chars, np.int64), op.constant(np.int64(_FIRST)))
    rows = op.reshape(digits, int_constant([-1, _NUM_CHARS]), special_zero=False)
    weights = op.constant((2 ** (_BITS * np.arange(_NUM_CHARS, dtype=np.int64)))[None])
    ids = op.reduce_sum(op.multiply(rows, weights), int_constant([1]), keep_dims=False)
    return op.unsqueeze(ids, int_constant(0))


def int_constant(value: Any) -> Any:
    return op.constant(np.array(value, dtype=np.int64))


def _chars(text: str) -> Any:
    values: npt.NDArray[np.uint8] = np.frombuffer(text.encode(), np.uint8)
    return op.constant(values, dtype=np.uint8).output(0)
