"""A decoder as an OpenVINO graph, without torch: a shape and random weights in, a model out.

The graph has the form of an exported model (stateful cache named `past_key_values.*`, reordered
by `beam_idx`), because the pipeline replaces the attention by the paged kind only in exactly this
pattern. The graph runs both in the pipeline and by itself.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
from openvino import Model, Node, PartialShape, Type
from openvino import opset13 as ops

MASKED = np.float32(-65504)  # lowest number of float16, as exported models have it
TO_THE_END = np.iinfo(np.int64).max
# Standard deviation of whole numbers drawn evenly from -128 to 127.
INT8_STD = float(np.sqrt((256**2 - 1) / 12))
# How much smaller a quiet row is. Far enough from 1 for such a row never to hold the largest
# logit, far enough from 0 for its embedding to survive the first RMSNorm. A power of two, see
# `checkpoints`.
QUIET = 0.125


@dataclass(frozen=True)
class DecoderShape:
    """A decoder-only transformer with grouped queries, RoPE, RMSNorm and a gated MLP, by the names
    of `config.json`. A model of the type qwen2 has biases of Q, K and V, and one of llama none.

    `initializer_range` is the standard deviation of every random weight. The deviation decides how
    much the layers weigh against the embedding of the last token: at 0.02, the usual choice before
    training, a tied model repeats its last token for ever.
    """

    model_type: Literal["llama", "qwen2"]
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    tie_word_embeddings: bool
    max_position_embeddings: int = 32_768
    rope_theta: float = 1_000_000.0
    rms_norm_eps: float = 1e-6
    initializer_range: float = 0.3

    @property
    def head_size(self) -> int:
        return self.hidden_size // self.num_attention_heads


def decoder(shape: DecoderShape, quiet_tokens: Collection[int] = ()) -> Model:
    """The whole model. `quiet_tokens` never win a greedy choice (an end that must not come)."""
    weights = RandomWeights(shape.initializer_range)
    inputs = Inputs()
    embedding = weights.matrix(shape.vocab_size, shape.hidden_size, quiet_tokens)
    head = (
        embedding
        if shape.tie_word_embeddings
        else weights.matrix(shape.vocab_size, shape.hidden_size, quiet_tokens)
    )

    hidden = ops.gather(embedding, ops.convert(inputs.ids, Type.i32), _int(0))
    context = Context.of(shape, inputs)
    sinks: list[Node] = []
    for index in range(shape.num_hidden_layers):
        hidden = _layer(Layer(index, shape, weights, context, sinks), hidden)

    logits = ops.matmul(_rms_norm(hidden, shape), head, False, True)
    logits.output(0).set_names({"logits"})
    return Model([ops.result(logits)], sinks, inputs.all, shape.model_type)


class RandomWeights:
    """Draws weights one after the other. The same order gives the same model.

    Weights have the form of exported int8 models: a matrix is a signed 8-bit constant, converted
    and multiplied by one scale for each row. The CPU plugin recognises this chain as compressed
    weights and keeps it in 8 bits.
    """

    def __init__(self, std: float) -> None:
        self._rng = np.random.default_rng(1)
        self._std = std

    def matrix(self, num_rows: int, num_columns: int, quiet_rows: Collection[int] = ()) -> Node:
        """float32, (num_rows, num_columns). In a head, quiet rows are tokens never chosen."""
        drawn = self.draw(num_rows, num_columns, quiet_rows)
        half = ops.convert(ops.constant(drawn.whole), Type.f16)
        return ops.convert(ops.multiply(half, ops.constant(drawn.scale)), Type.f32)

    def draw(self, num_rows: int, num_columns: int, quiet_rows: Collection[int] = ()) -> Drawn:
        drawn = np.frombuffer(self._rng.bytes(num_rows * num_columns), np.int8)
        scale = np.full((num_rows, 1), self._std / INT8_STD, np.float16)
        scale[list(quiet_rows)] *= np.float16(QUIET)
        return Drawn(drawn.reshape(num_rows, num_columns), scale)

    def bias(self, size: int) -> npt.NDArray[np.float32]:
        """(1, 1, size). Each value is exact in bfloat16."""
        drawn = self._rng.normal(0, self._std, (1, 1, size)).astype(np.float32)
        return (drawn.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)


@dataclass(frozen=True)
class Drawn:
    """A matrix of whole numbers, and the scale of each row."""

    whole: npt.NDArray[np.int8]  # (rows, columns)
    scale: npt.NDArray[np.float16]  # (rows, 1)


class Inputs:
    """The four parameters by the names that the pipeline looks for."""

    def __init__(self) -> None:
        self.ids = _parameter("input_ids", Type.i64, rank=2)
        self.attention_mask = _parameter("attention_mask", Type.i64, rank=2)
        self.positions = _parameter("position_ids", Type.i64, rank=2)
        self.beams = _parameter("beam_idx", Type.i32, rank=1)

    @property
    def all(self) -> list[Node]:
        return [self.ids, self.attention_mask, self.positions, self.beams]


@dataclass(frozen=True)
class Context:
    """Inputs that every layer reads and none changes."""

    cos: Node  # float32, (batch, 1, length, head_size)
    sin: Node  # float32, (batch, 1, length, head_size)
    mask: Node  # float32, (batch, 1, length, total length)
    batch_size: Node  # int64, (1,)
    beams: Node

    @classmethod
    def of(cls, shape: DecoderShape, inputs: Inputs) -> Context:
        angles = _angles(shape, inputs.positions)
        return cls(
            cos=ops.unsqueeze(ops.cos(angles), _int(1)),
            sin=ops.unsqueeze(ops.sin(angles), _int(1)),
            mask=_causal_mask(inputs),
            batch_size=ops.gather(ops.shape_of(inputs.ids), _ints(0), _int(0)),
            beams=inputs.beams,
        )


@dataclass(frozen=True)
class Layer:
    """A layer under construction. `sinks` collects the writes to the cache."""

    index: int
    shape: DecoderShape
    weights: RandomWeights
    context: Context
    sinks: list[Node]


def _layer(layer: Layer, hidden: Node) -> Node:
    hidden = ops.add(hidden, _attention(layer, _rms_norm(hidden, layer.shape)))
    return ops.add(hidden, _mlp(layer, _rms_norm(hidden, layer.shape)))


def _attention(layer: Layer, normed: Node) -> Node:
    shape = layer.shape
    query = _rotate(_heads(layer, normed, shape.num_attention_heads), layer.context, shape)
    key = _rotate(_heads(layer, normed, shape.num_key_value_heads), layer.context, shape)
    value = _heads(layer, normed, shape.num_key_value_heads)

    attended = ops.scaled_dot_product_attention(
        query,
        _repeat_heads(_remember(layer, "key", key), shape),
        _repeat_heads(_remember(layer, "value", value), shape),
        layer.context.mask,
    )
    joined = ops.reshape(_swap_heads(attended), _ints(0, 0, shape.hidden_size), True)
    return _linear(joined, layer.weights.matrix(shape.hidden_size, shape.hidden_size))


def _heads(layer: Layer, normed: Node, num_heads: int) -> Node:
    """A projection cut into heads. float32, (batch, num_heads, length, head_size)."""
    shape = layer.shape
    size = num_heads * shape.head_size
    projected = _linear(normed, layer.weights.matrix(size, shape.hidden_size))
    if shape.model_type == "qwen2":
        projected = ops.add(projected, ops.constant(layer.weights.bias(size)))
    return _swap_heads(ops.reshape(projected, _ints(0, 0, num_heads, shape.head_size), True))


def _remember(layer: Layer, name: str, current: Node) -> Node:
    """The cache of one layer with `current` appended. float32, (batch, heads, total, size)."""
    shape = layer.shape
    variable = f"past_key_values.{layer.index}.{name}"
    empty = ops.broadcast(
        ops.constant(np.float32(0)),
        ops.concat(
            [layer.context.batch_size, _ints(shape.num_key_value_heads, 0, shape.head_size)], 0
        ),
    )
    form = PartialShape([-1, shape.num_key_value_heads, -1, shape.head_size])
    past = ops.read_value(empty, variable, Type.f32, form)
    whole = ops.concat([ops.gather(past, layer.context.beams, _int(0)), current], -2)
    layer.sinks.append(ops.assign(whole, variable))
    return whole


def _repeat_heads(cached: Node, shape: DecoderShape) -> Node:
    """Each K or V head once for every query head that shares it."""
    group_size = shape.num_attention_heads // shape.num_key_value_heads
    if group_size == 1:
        return cached
    repeated = ops.broadcast(
        ops.unsqueeze(cached, _int(2)), _ints(1, 1, group_size, 1, 1), None, "BIDIRECTIONAL"
    )
    return ops.reshape(repeated, _ints(0, shape.num_attention_heads, -1, shape.head_size), True)


def _mlp(layer: Layer, normed: Node) -> Node:
    inner, outer = layer.shape.intermediate_size, layer.shape.hidden_size
    gate = ops.swish(_linear(normed, layer.weights.matrix(inner, outer)))
    up = _linear(normed, layer.weights.matrix(inner, outer))
    return _linear(ops.multiply(gate, up), layer.weights.matrix(outer, inner))


def _rms_norm(hidden: Node, shape: DecoderShape) -> Node:
    square = ops.power(hidden, _float_like(2.0))
    mean = ops.reduce_mean(square, _ints(-1), True)
    root = ops.sqrt(ops.add(mean, _float_like(shape.rms_norm_eps)))
    normed = ops.multiply(hidden, ops.divide(_float_like(1.0), root))
    return ops.multiply(ops.constant(np.ones((1, 1, shape.hidden_size), np.float32)), normed)


def _rotate(heads: Node, context: Context, shape: DecoderShape) -> Node:
    """RoPE as Llama has it: the second half, negated, stands before the first."""
    half = shape.head_size // 2
    second = ops.slice(heads, _ints(half), _ints(TO_THE_END), _ints(1), _ints(3))
    first = ops.slice(heads, _ints(0), _ints(half), _ints(1), _ints(3))
    turned = ops.concat([ops.multiply(second, ops.constant(np.float32(-1))), first], -1)
    return ops.add(ops.multiply(heads, context.cos), ops.multiply(turned, context.sin))


def _angles(shape: DecoderShape, positions: Node) -> Node:
    """float32, (batch, length, head_size)."""
    exponents = np.arange(0, shape.head_size, 2, dtype=np.float32) / shape.head_size
    frequencies = (1.0 / shape.rope_theta**exponents).astype(np.float32).reshape(1, -1, 1)
    turns = ops.convert(ops.unsqueeze(positions, _int(1)), Type.f32)
    angles = ops.transpose(
        ops.matmul(ops.constant(frequencies), turns, False, False), _ints(0, 2, 1)
    )
    return ops.concat([angles, angles], -1)


def _causal_mask(inputs: Inputs) -> Node:
    """0 where a token may look, a very low number elsewhere."""
    length = ops.gather(ops.shape_of(inputs.ids), _int(1), _int(0))
    total = ops.gather(ops.shape_of(inputs.attention_mask), _int(1), _int(0))
    keys = ops.range(_int(0), total, _int(1), Type.i64)
    queries = ops.range(ops.subtract(total, length), total, _int(1), Type.i64)

    causal = ops.less_equal(
        ops.unsqueeze(keys, _ints(0, 1, 2)), ops.unsqueeze(queries, _ints(0, 1, 3))
    )
    present = ops.unsqueeze(ops.convert(inputs.attention_mask, Type.boolean), _ints(1, 2))
    allowed = ops.logical_and(causal, present)
    return ops.select(allowed, ops.constant(np.float32(0)), ops.constant(MASKED))


def _linear(left: Node, matrix: Node) -> Node:
    return ops.matmul(left, matrix, False, True)


def _swap_heads(node: Node) -> Node:
    return ops.transpose(node, _ints(0, 2, 1, 3))


def _parameter(name: str, dtype: Type, rank: int) -> Node:
    node = ops.parameter([-1] * rank, dtype, name=name)
    node.output(0).set_names({name})
    return node


def _int(value: int) -> Node:
    return ops.constant(np.int64(value))


def _ints(*values: int) -> Node:
    return ops.constant(np.array(values, np.int64))


def _float_like(value: float) -> Node:
    return ops.constant(np.full((1, 1, 1), value, np.float32))
