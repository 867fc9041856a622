"""Sees which prompt tokens the engine really computes, and so which came from its cache.

GenAI tells nobody how much of a prompt its prefix cache saved. The probe is a Python
operation on the model's `position_ids`, which copies them through: the first position
computed for a prompt is the number of its tokens that were cached. It costs one small
copy a step and nothing per token of vocabulary.

The model's weights are not touched: only its graph description is written anew, beside a
link to the weights.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree

import openvino as ov

MODEL_FILE: Final = "openvino_model.xml"
_LAYER_NAME: Final = "vinery_position_probe"


class PositionProbe(ov.Op):  # type: ignore[misc]
    """Passes `position_ids` through and leaves a copy in `seen`."""

    # The runtime makes instances of its own from the class: they can only share a class
    # attribute. One engine process has one pipeline, so one list is enough.
    seen: list[Any] = []

    def __init__(self, inputs: Any = None) -> None:
        super().__init__(self, inputs)

    def validate_and_infer_types(self) -> None:
        """The output is like the input."""
        self.set_output_type(0, self.get_input_element_type(0), self.get_input_partial_shape(0))

    def clone_with_new_inputs(self, new_inputs: Any) -> PositionProbe:
        """Called by graph passes."""
        return PositionProbe(new_inputs)

    def visit_attributes(self, _visitor: Any) -> bool:
        """There are none."""
        return True

    def has_evaluate(self) -> bool:
        """It runs on the CPU, in Python."""
        return True

    def evaluate(self, outputs: Any, inputs: Any) -> bool:
        """Runs in the thread that steps."""
        positions = inputs[0].data
        outputs[0].shape = positions.shape
        outputs[0].data[:] = positions
        self.seen[:] = [positions.reshape(-1).copy()]
        return True


def last_positions() -> list[int]:
    """The positions that the last step computed, in the order of its rows."""
    return PositionProbe.seen[0].tolist() if PositionProbe.seen else []


def write_probed_folder(folder: Path, target: Path) -> bool:
    """Make `target` a copy of the model folder with the probe in its graph.

    Returns False, and makes nothing, when the graph has no `position_ids` to watch. All
    files but the graph are links, so this is quick and small for any model. Raises
    RuntimeError for a file that is no graph.
    """
    net = _read_graph(folder / MODEL_FILE)
    if not _insert(net):
        return False
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for file in folder.iterdir():
        if file.name != MODEL_FILE:
            (target / file.name).symlink_to(file.resolve())
    ElementTree.ElementTree(net).write(target / MODEL_FILE)
    return True


def _read_graph(file: Path) -> ElementTree.Element:
    try:
        return ElementTree.parse(file).getroot()
    except ElementTree.ParseError as error:
        raise RuntimeError(f"{file} is not an OpenVINO graph: {error}.") from None


def _insert(net: ElementTree.Element) -> bool:
    layers, edges = net.find("layers"), net.find("edges")
    if layers is None or edges is None:
        return False
    parameter = next((layer for layer in layers if _is_positions(layer)), None)
    if parameter is None:
        return False
    port = parameter.find("output/port")
    if port is None:
        return False
    probe_id = str(1 + max(int(layer.attrib["id"]) for layer in layers))
    for edge in edges:
        if edge.attrib["from-layer"] == parameter.attrib["id"]:
            edge.attrib.update({"from-layer": probe_id, "from-port": "1"})
    source = {"from-layer": parameter.attrib["id"], "from-port": port.attrib["id"]}
    ElementTree.SubElement(edges, "edge", {**source, "to-layer": probe_id, "to-port": "0"})
    # Layers are read in order, so the probe must stand right after its input.
    layers.insert(list(layers).index(parameter) + 1, _probe_layer(probe_id, port))
    return True


def _is_positions(layer: ElementTree.Element) -> bool:
    """Two-dimensional `position_ids`: vision models have a third, which has other rules."""
    if layer.attrib.get("type") != "Parameter" or layer.attrib.get("name") != "position_ids":
        return False
    return len(layer.findall("output/port/dim")) == 2


def _probe_layer(layer_id: str, like: ElementTree.Element) -> ElementTree.Element:
    kind = {"id": layer_id, "name": _LAYER_NAME, "type": "PositionProbe", "version": "extension"}
    layer = ElementTree.Element("layer", kind)
    for side, port_id in (("input", "0"), ("output", "1")):
        port = ElementTree.SubElement(
            ElementTree.SubElement(layer, side),
            "port",
            {"id": port_id, "precision": like.attrib.get("precision", "I64")},
        )
        for dim in like.findall("dim"):
            ElementTree.SubElement(port, "dim").text = dim.text
    return layer


def num_cached(
    positions: Sequence[int], num_decoding: int, prompts: Sequence[tuple[int, bool]]
) -> list[int | None]:
    """How many tokens of each prompt in a step were cached; None where it cannot be told.

    The rows of a step are one for each decoding generation, then a stretch for each
    prompt in the order of submission: from its first uncomputed position to its end, or
    to the end of the step's budget. `prompts` holds (number of tokens, is this its first
    step) in that order.
    """
    found: list[int | None] = [None] * len(prompts)
    row = num_decoding
    for at, (num_tokens, is_first) in enumerate(prompts):
        if row >= len(positions):
            break
        start = positions[row]
        num_rows = min(num_tokens - start, len(positions) - row)
        if num_rows < 1 or positions[row + num_rows - 1] != start + num_rows - 1:
            break  # not the order that is expected here, as after a preemption: say nothing
        if is_first:
            found[at] = start
        row += num_rows
    return found
