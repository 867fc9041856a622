"""Loads a model to train on, from a checkpoint or from an exported model.

An exported model keeps each weight as int8 with a scale and a zero point per row; multiplying
them out loses no more than the quantisation already had.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import openvino as ov
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

NORM_SUFFIX = "/aten::mul/Multiply_1"


def load(folder: Path) -> Qwen3ForCausalLM:
    """The model in `folder`, which holds a checkpoint or an exported model."""
    if (folder / "openvino_model.xml").exists():
        return recover(folder)
    return Qwen3ForCausalLM.from_pretrained(folder)


def recover(exported: Path) -> Qwen3ForCausalLM:
    """The model in the folder `exported`, with float32 weights.

    Raises ValueError if the graph holds other weights than the configuration asks for.
    """
    configuration = json.loads((exported / "config.json").read_text(encoding="utf-8"))
    model = Qwen3ForCausalLM(Qwen3Config(**configuration))
    graph = ov.Core().read_model(exported / "openvino_model.xml")
    weights = dict((*_matrices(graph), *_norms(graph)))
    weights["lm_head.weight"] = weights["model.embed_tokens.weight"]
    missing, unexpected = model.load_state_dict(weights, strict=False)
    if missing or unexpected:
        raise ValueError(f"{exported}: missing {missing}, unexpected {unexpected}")
    return model


def _matrices(graph: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """Name and value of every int8 matrix: (stored - zero point) * scale, row by row."""
    constants = {
        node.get_friendly_name(): node.data
        for node in graph.get_ordered_ops()
        if node.get_type_name() == "Constant"
    }
    for name, stored in constants.items():
        if not name.endswith(".weight"):
            continue
        zero_point = constants[f"{name}/zero_point"].astype(np.float32)
        scale = constants[f"{name}/scale"].astype(np.float32)
        value = (stored.astype(np.float32) - zero_point) * scale
        yield name.removeprefix("self."), torch.from_numpy(value)


def _norms(graph: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """Name and value of every norm's weight, found as the constant its last product takes."""
    for node in graph.get_ordered_ops():
        name = node.get_friendly_name()
        if "norm" not in name or not name.endswith(NORM_SUFFIX):
            continue
        constant = node.input_value(0).get_node()
        value = constant.data.astype(np.float32).reshape(-1)
        module = name.removeprefix("__module.").removesuffix(NORM_SUFFIX)
        yield f"{module}.weight", torch.from_numpy(value)
