"""LoRA adapters of a model: files that PEFT writes, checked against the graph, because GenAI
2026.4.1 ignores tensors that do not fit."""

import json
import math
import re
import struct
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple
from xml.etree.ElementTree import Element, iterparse

from vinery_serving.engine.option_groups import Adapter

WEIGHTS: Final = "adapter_model.safetensors"
_CONFIG: Final = "adapter_config.json"
_TENSOR: Final = re.compile(r"base_model\.model\.(.+)\.lora_([AB])\.weight")
_MAX_HEADER_BYTES: Final = 100 << 20  # the limit of the format's own reader
# Variants whose files GenAI reads as if they were plain.
_VARIANTS: Final = ("use_dora", "rank_pattern", "alpha_pattern", "modules_to_save")


class LoadedAdapter(NamedTuple):
    path: Path  # of the file
    scale: float  # by which its matrices are multiplied


class _Shape(NamedTuple):
    num_inputs: int
    num_outputs: int

    def __str__(self) -> str:
        return f"{self.num_inputs} inputs and {self.num_outputs} outputs"


def read_adapters(adapters: Sequence[Adapter], graph: Path) -> list[LoadedAdapter]:
    """Return the files and their scales. Raises RuntimeError with a sentence for a file that does
    not fit the model of the graph."""
    if not adapters:
        return []
    layers = dict(_layers(graph))
    return [_read(adapter, layers) for adapter in adapters]


def _read(adapter: Adapter, layers: Mapping[str, _Shape]) -> LoadedAdapter:
    file = path / WEIGHTS if (path := Path(adapter.path)).is_dir() else path
    try:
        shapes, config = _shapes(file), _config(file.parent / _CONFIG)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, struct.error) as error:
        raise RuntimeError(f"The adapter {file} cannot be read: {error}.") from None
    for name in _VARIANTS:
        if config.get(name):
            raise RuntimeError(
                f"The adapter {file} was trained with {name}, which OpenVINO GenAI does not apply."
            )
    for module, shape in _modules(file, shapes).items():
        if (known := layers.get(module)) != shape:
            found = "no such layer" if known is None else str(known)
            raise RuntimeError(
                f"The adapter {file} is for another model: {module} has {shape} in the adapter, "
                f"and the model has {found}."
            )
    return LoadedAdapter(file, adapter.alpha * _scaling(config))


def _modules(file: Path, shapes: Mapping[str, Sequence[int]]) -> dict[str, _Shape]:
    """Return what each module has in the adapter. Raises RuntimeError for other tensors."""
    pairs: defaultdict[str, dict[str, Sequence[int]]] = defaultdict(dict)
    for name, shape in shapes.items():
        found = _TENSOR.fullmatch(name)
        if found is None or len(shape) != 2:
            raise RuntimeError(
                f"The adapter {file} has the tensor {name}, which is not one of a LoRA adapter "
                "that PEFT writes."
            )
        pairs[found[1]][found[2]] = shape
    if not pairs:
        raise RuntimeError(f"The adapter {file} has no tensors.")
    for module, pair in pairs.items():
        if len(pair) != 2 or pair["A"][0] != pair["B"][1]:
            raise RuntimeError(f"The adapter {file} is damaged: {module} has no matching pair.")
    return {module: _Shape(pair["A"][1], pair["B"][0]) for module, pair in pairs.items()}


def _shapes(file: Path) -> dict[str, list[int]]:
    """Read the header of a safetensors file. Raises OSError, ValueError or struct.error."""
    with file.open("rb") as opened:
        (length,) = struct.unpack("<Q", opened.read(8))
        if length > _MAX_HEADER_BYTES:
            raise ValueError("it is not a safetensors file")
        header = json.loads(opened.read(length))
        size = file.stat().st_size - 8 - length
    header.pop("__metadata__", None)
    ends = [each["data_offsets"][1] for each in header.values()]
    if max(ends, default=0) > size:
        raise ValueError("it is cut")
    return {name: each["shape"] for name, each in header.items()}


def _config(file: Path) -> Mapping[str, Any]:
    """Read PEFT's configuration beside the weights; empty without one. Raises OSError and
    ValueError."""
    if not file.is_file():
        return {}
    config = json.loads(file.read_text(encoding="utf-8"))
    if not isinstance(config, dict):
        raise ValueError(f"{file.name} is not an object")
    return config


def _scaling(config: Mapping[str, Any]) -> float:
    """Return what PEFT multiplies the product of the matrices by; 1 without a configuration."""
    alpha, rank = config.get("lora_alpha"), config.get("r")
    if not alpha or not rank:
        return 1.0
    return float(alpha) / (math.sqrt(rank) if config.get("use_rslora") else rank)


def _layers(graph: Path) -> Iterator[tuple[str, _Shape]]:
    for _, element in iterparse(graph):
        if element.tag != "layer":
            continue
        name = element.get("name", "").removeprefix("__module.")
        if element.get("type") == "MatMul" and "/" in name:
            shape = _Shape(_last(element, "input/port"), _last(element, "output/port"))
            yield name.partition("/")[0], shape
        element.clear()  # a large graph would take a hundred times its size


def _last(layer: Element, path: str) -> int:
    port = layer.find(path)
    sizes = [] if port is None else port.findall("dim")
    return int(sizes[-1].text or -1) if sizes else -1
