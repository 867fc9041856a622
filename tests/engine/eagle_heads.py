"""EAGLE-3 heads for tiny-chat, made of OpenVINO's operations as optimum-intel exports them.

A head reads hidden states of three layers of the model beside the next token. GenAI finds a head's
parts by names and connections, see `write_head`.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import openvino as ov
from openvino import opset13 as op
from openvino.op.util import Variable, VariableInfo

from tests.engine.conftest import TINY_CHAT

_SIZE: Final = 256
_NUM_HEADS: Final = 2
_HEAD_SIZE: Final = 64
_MLP_SIZE: Final = 64
_GRAPH: Final = "openvino_model.xml"


def write_head(folder: Path, following: Mapping[int, int], layers: tuple[int, ...] = ()) -> Path:
    """Write a head that expects `following[token]` after a token, whatever its attention finds.

    The head reads the states of `layers`; (): GenAI chooses, for models with ten or more layers.
    """
    folder.mkdir()
    ids, mask, positions, beam = (
        _parameter("input_ids", np.int64, 2),
        _parameter("attention_mask", np.int64, 2),
        _parameter("position_ids", np.int64, 2),
        _parameter("beam_idx", np.int32, 1),
    )
    states = _parameter("hidden_states", np.float32, 3)
    table = _embeddings()
    weights = _named(_floats(table), "model.embed_tokens.weight")
    embedded = op.gather(weights, ids, _ints(0))
    random = _Random()
    fused = random.linear(states, 3 * _SIZE, _SIZE)
    both = op.concat([_normed(embedded), _normed(fused)], -1)
    attended, assigns = _attention(random, both, positions, mask, beam)
    residual = op.add(fused, attended)
    mlp = op.multiply(
        op.swish(random.linear(residual, _SIZE, _MLP_SIZE)),
        random.linear(residual, _SIZE, _MLP_SIZE),
    )
    hidden = _named(op.add(residual, random.linear(mlp, _MLP_SIZE, _SIZE)), "midlayer/Add")
    # GenAI chooses rows of the last multiplication's input, so there is one of all that is known.
    weights = np.concatenate([_next_weights(table, following), random.weights(len(table), 1e-4)], 1)
    known = op.concat([_normed(embedded), hidden], -1)
    logits = _result(op.matmul(known, _floats(weights), False, True), "logits")
    offsets = _result(_named(op.constant(np.zeros(len(table), np.int64)), "d2t"), "d2t")
    model = ov.Model([logits, offsets], assigns, [ids, states, mask, positions, beam], "head")
    model.set_rt_info("True", ["eagle3_mode"])
    if layers:
        model.set_rt_info(list(layers), ["hidden_layers_list"])
    ov.save_model(model, folder / _GRAPH, compress_to_fp16=False)
    for file in TINY_CHAT.iterdir():
        if file.name not in (_GRAPH, "openvino_model.bin", "config.json"):
            (folder / file.name).symlink_to(file)
    (folder / "config.json").write_text(json.dumps({"architectures": ["LlamaForCausalLMEagle3"]}))
    return folder


class _Random:
    """Layers with random weights."""

    def __init__(self) -> None:
        self._numbers = np.random.default_rng(0)

    def weights(self, num_out: int, scale: float, num_in: int = _SIZE) -> Any:
        return self._numbers.standard_normal((num_out, num_in)) * scale

    def linear(self, value: Any, num_in: int, num_out: int) -> Any:
        return op.matmul(value, _floats(self.weights(num_out, 0.02, num_in)), False, True)


def _attention(random: _Random, value: Any, positions: Any, mask: Any, beam: Any) -> Any:
    """Returns the output, and the operations that keep keys and values."""
    angles = _angles(positions)
    turned = _turned(_heads(random.linear(value, 2 * _SIZE, 128)), angles)
    keys, new_keys = _kept(turned, beam, "key")
    values, new_values = _kept(_heads(random.linear(value, 2 * _SIZE, 128)), beam, "value")
    num_keys = op.gather(op.shape_of(mask), _ints(1), _ints(0))
    numbers = op.reshape(op.range(_ints(0), num_keys, _ints(1), "i64"), _ints([1, 1, -1]), False)
    is_past = op.less_equal(numbers, op.unsqueeze(positions, _ints(2)))
    bias = op.unsqueeze(op.select(is_past, _floats(0), _floats(-1e9)), _ints(1))
    queries = _turned(_heads(random.linear(value, 2 * _SIZE, 128)), angles)
    found = op.scaled_dot_product_attention(queries, keys, values, bias)
    joined = op.reshape(op.transpose(found, _ints([0, 2, 1, 3])), _ints([0, 0, 128]), True)
    return random.linear(joined, 128, _SIZE), [new_keys, new_values]


def _kept(new: Any, beam: Any, kind: str) -> tuple[Any, Any]:
    """Returns all keys or values so far, and the operation that keeps them."""
    info = VariableInfo()
    info.data_shape = ov.PartialShape([-1, _NUM_HEADS, -1, _HEAD_SIZE])
    info.data_type = ov.Type.f32
    info.variable_id = f"past_key_values.0.{kind}present.0.{kind}"
    variable = Variable(info)
    num = op.gather(op.shape_of(beam), _ints([0]), _ints(0))
    shape = op.concat([num, _ints([_NUM_HEADS, 0, _HEAD_SIZE])], 0)
    past = op.read_value(op.broadcast(_floats(0), shape), variable)
    all_ = op.concat([op.gather(past, beam, _ints(0)), new], 2)
    return all_, op.assign(all_, variable)


def _angles(positions: Any) -> Any:
    rates = 10_000.0 ** (-np.arange(0, _HEAD_SIZE, 2) / _HEAD_SIZE)
    numbers = op.convert(op.unsqueeze(positions, _ints(2)), np.float32)
    half = op.multiply(numbers, _floats(rates[None, None]))
    return op.unsqueeze(op.concat([half, half], -1), _ints(1))


def _turned(value: Any, angles: Any) -> Any:
    """Returns the value with rotary positions."""
    first, second = op.split(value, _ints(3), 2).outputs()
    crossed = op.concat([op.negative(second), first], -1)
    return op.add(op.multiply(value, op.cos(angles)), op.multiply(crossed, op.sin(angles)))


def _heads(value: Any) -> Any:
    split = op.reshape(value, _ints([0, 0, _NUM_HEADS, _HEAD_SIZE]), True)
    return op.transpose(split, _ints([0, 2, 1, 3]))


def _normed(value: Any) -> Any:
    mean = op.reduce_mean(op.multiply(value, value), _ints([-1]), keep_dims=True)
    return op.divide(value, op.sqrt(op.add(mean, _floats(1e-6))))


def _embeddings() -> Any:
    """Return the embeddings of tiny-chat, (num_tokens, size)."""
    graph = ov.Core().read_model(TINY_CHAT / _GRAPH)
    (lookup,) = (
        each
        for each in graph.get_ops()
        if each.get_type_name() == "Gather" and "embed_tokens" in each.get_friendly_name()
    )
    table = ov.Model([op.result(lookup.input_value(0))], [], "table")
    return ov.Core().compile_model(table, "CPU")([])[0]


def _next_weights(table: Any, following: Mapping[int, int]) -> Any:
    """Return weights (num_tokens, size) with 10 for the token that follows, and 0 for others."""
    rows = table[list(following)]
    rows = rows / np.sqrt((rows**2).mean(axis=1, keepdims=True))
    weights = np.zeros_like(table)
    for column, token in zip(10 * np.linalg.pinv(rows).T, following.values(), strict=True):
        weights[token] += column
    return weights


def _parameter(name: str, kind: Any, num_dimensions: int) -> Any:
    parameter = op.parameter([-1] * num_dimensions, kind, name=name)
    parameter.output(0).set_names({name})
    return parameter


def _result(value: Any, name: str) -> Any:
    result = op.result(value)
    result.output(0).set_names({name})
    return result


def _named(node: Any, name: str) -> Any:
    node.set_friendly_name(name)
    return node


def _floats(values: Any) -> Any:
    return op.constant(np.asarray(values, np.float32))


def _ints(values: Any) -> Any:
    return op.constant(np.asarray(values, np.int64))
