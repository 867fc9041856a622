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

from tests.engine.conftest import TINY_CHAT
from tests.random_models import decoder

_GRAPH: Final = "openvino_model.xml"
_SHAPE: Final = decoder.DecoderShape(
    model_type="llama",
    vocab_size=3072,
    hidden_size=256,
    intermediate_size=64,
    num_hidden_layers=1,
    num_attention_heads=2,
    num_key_value_heads=2,
    tie_word_embeddings=False,
    initializer_range=0.02,
)


def write_head(folder: Path, following: Mapping[int, int], layers: tuple[int, ...] = ()) -> Path:
    """Write a head that expects `following[token]` after a token, whatever its attention finds.

    The head reads the states of `layers`; (): GenAI chooses, for models with ten or more layers.
    """
    folder.mkdir()
    inputs, weights = decoder.Inputs(), decoder.RandomWeights(_SHAPE.initializer_range)
    states = decoder._parameter("hidden_states", ov.Type.f32, rank=3)
    table, size = _embeddings(), _SHAPE.hidden_size
    embedding = _named(_floats(table), "model.embed_tokens.weight")
    embedded = op.gather(embedding, inputs.ids, decoder._int(0))
    fused = decoder._linear(states, weights.matrix(size, 3 * size))
    sinks: list[Any] = []
    layer = decoder.Layer(0, _SHAPE, weights, decoder.Context.of(_SHAPE, inputs), sinks)
    hidden = _named(decoder._layer(layer, op.add(fused, embedded)), "midlayer/Add")
    # GenAI chooses rows of the last multiplication's input, so there is one of all that is known.
    noise = np.random.default_rng(0).standard_normal(table.shape) * 1e-4
    rows = np.concatenate([_next_weights(table, following), noise], 1)
    known = op.concat([decoder._rms_norm(embedded, _SHAPE), hidden], -1)
    logits = _result(decoder._linear(known, _floats(rows)), "logits")
    offsets = _result(_named(op.constant(np.zeros(len(table), np.int64)), "d2t"), "d2t")
    model = ov.Model([logits, offsets], sinks, [*inputs.all, states], "head")
    model.set_rt_info("True", ["eagle3_mode"])
    if layers:
        model.set_rt_info(list(layers), ["hidden_layers_list"])
    ov.save_model(model, folder / _GRAPH, compress_to_fp16=False)
    for file in TINY_CHAT.iterdir():
        if file.name not in (_GRAPH, "openvino_model.bin", "config.json"):
            (folder / file.name).symlink_to(file)
    (folder / "config.json").write_text(json.dumps({"architectures": ["LlamaForCausalLMEagle3"]}))
    return folder


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


def _result(value: Any, name: str) -> Any:
    result = op.result(value)
    result.output(0).set_names({name})
    return result


def _named(node: Any, name: str) -> Any:
    node.set_friendly_name(name)
    return node


def _floats(values: Any) -> Any:
    return op.constant(np.asarray(values, np.float32))
