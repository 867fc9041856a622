"""Lets OpenVINO load a kept compiled graph instead of compiling the model again.

The CPU plugin (2026.4.1) cannot read a graph with paged attention: the numbers and sizes of heads
are not written. So they are added by OpenVINO's callbacks for encryption, and each attention gets
the type of `KeptAttention`, which makes the attention with its numbers when the graph is read. If a
kept graph cannot be read, OpenVINO compiles.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, ClassVar, Final, NamedTuple
from xml.etree.ElementTree import Element, fromstring

import openvino as ov
from openvino import op
from openvino import opset13 as opset

_ATTENTION: Final = b'type="PagedAttentionExtension" version="extension"'
_KEPT: Final = b'type="KeptAttention" version="extension"'
_LAYER: Final = re.compile(rb'<layer [^>]*type="PagedAttentionExtension".*?</layer>', re.DOTALL)
_HEADS: Final = re.compile(_KEPT + rb' heads="(\d+) (\d+) (\d+) (\d+)"')

# The inputs of an attention by type and number of dimensions, in order. Only number and form
# matter: the real inputs follow.
_F32, _I32 = (ov.Type.f32, ov.Type.i32)
_INPUTS: Final = (
    *(((_F32, 2),) * 3),  # queries, keys, values
    *(((ov.Type.f16, 4),) * 2),  # the caches of keys and values
    *(((_I32, 1),) * 4),  # past lengths, subsequences, blocks, and where the blocks begin
    *((_F32, 0), (_I32, 0), (_F32, 1), (_I32, 0)),  # scale, window, ALiBi, longest context
    *((_I32, 1), (_I32, 1), (_I32, 1), (_F32, 1)),  # scores, rotation
    *((_F32, 1), (_I32, 0), (_I32, 0)),  # sparse attention
    *((_F32, 4), (_I32, 0)),  # sinks, adaptive eviction
    *((_I32, 1), (_I32, 1), (_I32, 1), (_I32, 1), (ov.Type.u8, 1), (_I32, 1)),
)


class _Heads(NamedTuple):
    num_k_heads: int
    k_head_size: int
    num_v_heads: int
    v_head_size: int


class KeptAttention(ov.Op):  # type: ignore[misc]
    """Stands for paged attention in a kept graph. A call returns an attention with the heads of
    the graph that is read, and before any is read an operation with only a name."""

    # The runtime makes the operations itself, one graph after the other.
    heads: ClassVar[_Heads | None] = None
    num_read: ClassVar[int] = 0  # how many attentions were read

    def __new__(cls, *_: Any) -> Any:
        if cls.heads is None:
            return super().__new__(cls)
        cls.num_read += 1
        return _attention(cls.heads)

    def __init__(self) -> None:
        super().__init__(self)


def cache_callbacks() -> list[Callable[[bytes], bytes]]:
    """Return OpenVINO's callbacks for the XML of a written and of a read graph. The callback for
    reading must return as many bytes as it gets."""
    return [_with_heads, _note_heads]


def _with_heads(graph: bytes) -> bytes:
    found = {_read_heads(fromstring(layer)) for layer in _LAYER.findall(graph)}
    if len(found) != 1 or (heads := found.pop()) is None:
        return graph
    numbers = " ".join(map(str, heads)).encode()
    return graph.replace(_ATTENTION, _KEPT + b' heads="' + numbers + b'"')


def _note_heads(graph: bytes) -> bytes:
    if match := _HEADS.search(graph):
        KeptAttention.heads = _Heads(*map(int, match.groups()))
    return graph


def _read_heads(layer: Element) -> _Heads | None:
    """Return the heads of an attention; None if a size is not fixed."""
    inputs = [[int(dim.text or -1) for dim in port] for port in layer.iterfind("input/port")]
    _, keys, values, key_cache, value_cache, *_ = inputs
    num_k_heads, num_v_heads = key_cache[1], value_cache[1]
    if min(num_k_heads, num_v_heads, keys[1], values[1]) <= 0:
        return None
    return _Heads(num_k_heads, keys[1] // num_k_heads, num_v_heads, values[1] // num_v_heads)


def _attention(heads: _Heads) -> Any:
    inputs = [
        opset.parameter(ov.PartialShape([-1] * num_dims), kind).output(0)
        for kind, num_dims in _INPUTS
    ]
    attention = op._PagedAttentionExtension(inputs)
    for name, value in heads._asdict().items():
        attention.rt_info[name] = value
    return attention
