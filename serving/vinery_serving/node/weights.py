"""Whether the weights files of a model folder are whole, without loading them.

A graph (`.xml`) names for each constant where it begins in the weights file (`.bin`), and its size.
A copy that was cut is shorter than the end of the last constant.
"""

from pathlib import Path
from xml.etree.ElementTree import ParseError, iterparse


class UnusableWeights(Exception):
    """A weights file is missing or cut. The message names it, and what to do."""


def check_weights(folder: Path) -> None:
    """Raises `UnusableWeights`, or OSError for a file that cannot be read."""
    for graph in sorted(folder.glob("openvino_*.xml")):
        needed = _needed_bytes(graph)
        weights = graph.with_suffix(".bin")
        if needed and not weights.is_file():
            raise UnusableWeights(
                f"The weights file {weights.name} is missing in {folder}. Copy the folder again."
            )
        if needed and (size := weights.stat().st_size) < needed:
            raise UnusableWeights(
                f"The weights file {weights.name} is cut: it has {size:,} bytes, and the graph "
                f"needs {needed:,}. Copy the folder again."
            )


def _needed_bytes(graph: Path) -> int:
    """Return where the last constant ends; 0 without constants, and for a file that is no graph,
    which is reported when it is read."""
    end, is_constant = 0, False
    try:
        for event, element in iterparse(graph, ("start", "end")):
            if event == "start" and element.tag == "layer":
                is_constant = element.get("type") == "Const"
            elif event == "end" and element.tag == "data" and is_constant:
                end = max(end, int(element.get("offset", 0)) + int(element.get("size", 0)))
            elif event == "end" and element.tag == "layer":
                element.clear()  # a large graph would take a hundred times its size
    except (ParseError, ValueError):
        return 0
    return end
