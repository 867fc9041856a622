"""LoRA adapters for tiny-chat, as PEFT writes them."""

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

LAYER = "base_model.model.model.layers.{}."
NUM_LAYERS = 5
RANK = 4


def matrices(
    strength: float, module: str = "self_attn.q_proj", size: tuple[int, int] = (256, 256)
) -> dict[str, np.ndarray]:
    """Return random matrices for one module of each layer. `size`: its inputs and outputs."""
    random = np.random.default_rng(1)
    num_inputs, num_outputs = size
    tensors: dict[str, np.ndarray] = {}
    for index in range(NUM_LAYERS):
        name = LAYER.format(index) + module
        first = random.normal(0, strength / num_inputs**0.5, (RANK, num_inputs))
        second = random.normal(0, 0.5, (num_outputs, RANK))
        tensors[f"{name}.lora_A.weight"] = first.astype(np.float32)
        tensors[f"{name}.lora_B.weight"] = second.astype(np.float32)
    return tensors


def safetensors(tensors: Mapping[str, np.ndarray]) -> bytes:
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    data = b""
    for name, tensor in tensors.items():
        offsets = [len(data), len(data) + tensor.nbytes]
        header[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": offsets}
        data += tensor.tobytes()
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


def write_safetensors(path: Path, tensors: Mapping[str, np.ndarray]) -> Path:
    path.write_bytes(safetensors(tensors))
    return path


def write_adapter(folder: Path, tensors: Any = None, **config: Any) -> Path:
    """Write a folder with weights and, for any `config`, PEFT's configuration."""
    folder.mkdir(exist_ok=True)
    given = matrices(8.0) if tensors is None else tensors
    write_safetensors(folder / "adapter_model.safetensors", given)
    if config:
        (folder / "adapter_config.json").write_text(json.dumps(config))
    return folder
