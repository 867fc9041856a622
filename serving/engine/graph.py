"""Writes a copy of a model's folder whose graph has a logits hook and takes salted token ids.

Only the graph's XML is written anew, beside links to the weights and the other files.

- The **logits hook** (`serving.engine.logits_hook`) is an operation on the logits, the token ids
  and the positions of a step. It is a side branch: the logits do not pass through it. A step
  without a callback only pays for an empty call.
- For **salts**, token ids are taken modulo the vocabulary size. A prompt whose first ids are
  raised by a multiple of it means the same to the model, but shares nothing with other prompts
  in the prefix cache (`serving.engine.prefix_cache`).
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from xml.etree.ElementTree import Element, ElementTree, ParseError, SubElement, parse

MODEL_FILE: Final = "openvino_model.xml"
HOOK_TYPE: Final = "LogitsHook"  # the name of the operation's class
# Layers between a compressed embedding table and its use.
_DECOMPRESSION: Final = frozenset(("Convert", "Subtract", "Multiply", "Reshape"))
# The CPU plugin computes with 32 bits for token ids.
_MAX_TOKEN_ID: Final = 2**31 - 1

# An output of a layer: (layer id, port id).
_Port = tuple[str, str]


@dataclass(frozen=True, slots=True)
class GraphFeatures:
    """What a model's graph supports."""

    has_logits_hook: bool = False
    salt_modulus: int = 0  # token ids are taken modulo this; 0: salts are not supported

    @property
    def num_salts(self) -> int:
        """How many different salts fit into a token id."""
        return _MAX_TOKEN_ID // self.salt_modulus - 1 if self.salt_modulus else 0


def write_hooked_folder(
    folder: Path, target: Path, *, has_logits_hook: bool = True
) -> GraphFeatures:
    """Make `target` a copy of a model folder with hook and salts, or with salts alone.

    Returns what the copy supports. The hook needs `logits` and two-dimensional `position_ids`;
    without them no copy is written. Raises RuntimeError for a file that is not a graph.
    """
    net = _Net(_read(folder / MODEL_FILE))
    parameter = net.parameter("input_ids")
    if parameter is None:
        return GraphFeatures()
    ids, salt_modulus = _insert_modulo(net, parameter, folder) or (_output(parameter), 0)
    if not (_insert_hook(net, ids) if has_logits_hook else salt_modulus):
        return GraphFeatures()
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for file in folder.iterdir():
        if file.name != MODEL_FILE:
            (target / file.name).symlink_to(file.resolve())
    ElementTree(net.root).write(target / MODEL_FILE)
    return GraphFeatures(has_logits_hook, salt_modulus)


def _read(file: Path) -> Element:
    try:
        return parse(file).getroot()
    except ParseError as error:
        raise RuntimeError(f"{file} is not an OpenVINO graph: {error}.") from None


class _Net:
    """The XML of a graph: edges, and layers of which each follows its inputs."""

    def __init__(self, root: Element) -> None:
        self.root = root
        self.layers = root.find("layers") or Element("layers")
        self._edges = root.find("edges") or Element("edges")
        self._by_id = {layer.attrib["id"]: layer for layer in self.layers}
        self._next_id = 1 + max((int(id_) for id_ in self._by_id), default=0)

    def layer(self, id_: str) -> Element:
        return self._by_id[id_]

    def parameter(self, name: str) -> Element | None:
        """Return the graph's input of this name."""
        for layer in self.layers:
            if layer.attrib["type"] == "Parameter" and name in _tensor_names(layer):
                return layer
        return None

    def sources(self, layer: Element) -> list[_Port]:
        """Return the outputs that the layer reads, in the order of its ports."""
        return [_source(edge) for edge in self._edges_to(layer)]

    def consumers(self, layer: Element) -> Iterator[tuple[Element, int]]:
        """Yield the layers that read this layer, each with the index of that input."""
        for edge in self._edges:
            if edge.attrib["from-layer"] == layer.attrib["id"]:
                reader = self.layer(edge.attrib["to-layer"])
                yield reader, self.sources(reader).index(_source(edge))

    def port(self, source: _Port) -> Element:
        """Return the element that describes an output."""
        for port in self.layer(source[0]).findall("output/port"):
            if port.attrib["id"] == source[1]:
                return port
        raise RuntimeError(f"The graph has no output {source[1]} on layer {source[0]}.")

    def redirect(self, reader: Element, index: int, source: _Port) -> None:
        """Let a layer read its input `index` from another output."""
        edge = self._edges_to(reader)[index]
        edge.attrib.update({"from-layer": source[0], "from-port": source[1]})

    def put_first(self, constant: Element) -> None:
        """Move a constant before all layers that read it. It has no inputs itself."""
        self.layers.remove(constant)
        self.layers.insert(0, constant)

    def add(
        self,
        kind: str,
        version: str,
        inputs: Sequence[_Port],
        output: Element | None,
        **data: str,
    ) -> Element:
        """Insert a layer behind its inputs. `output` describes its only output, if it has one."""
        id_ = str(self._next_id)
        self._next_id += 1
        layer = Element(
            "layer", {"id": id_, "name": f"vinery_{id_}", "type": kind, "version": version}
        )
        if data:
            SubElement(layer, "data", data)
        ports = SubElement(layer, "input")
        for index, source in enumerate(inputs):
            ports.append(_port_like(self.port(source), str(index)))
            edge = {"from-layer": source[0], "from-port": source[1]}
            SubElement(self._edges, "edge", {**edge, "to-layer": id_, "to-port": str(index)})
        if output is not None:
            SubElement(layer, "output").append(_port_like(output, str(len(inputs))))
        order = list(self.layers)
        index = 1 + max(order.index(self.layer(source[0])) for source in inputs)
        self.layers.insert(index, layer)
        self._by_id[id_] = layer
        return layer

    def _edges_to(self, layer: Element) -> list[Element]:
        edges = [edge for edge in self._edges if edge.attrib["to-layer"] == layer.attrib["id"]]
        return sorted(edges, key=lambda edge: int(edge.attrib["to-port"]))


def _source(edge: Element) -> _Port:
    return edge.attrib["from-layer"], edge.attrib["from-port"]


def _tensor_names(layer: Element) -> list[str]:
    port = layer.find("output/port")
    return [] if port is None else port.attrib.get("names", "").split(",")


def _port_like(port: Element, id_: str) -> Element:
    copy = Element("port", {"id": id_, "precision": port.attrib.get("precision", "I64")})
    for dim in port.findall("dim"):
        SubElement(copy, "dim").text = dim.text
    return copy


def _vector(precision: str, length: int) -> Element:
    port = Element("port", {"precision": precision})
    SubElement(port, "dim").text = str(length)
    return port


def _output(layer: Element) -> _Port:
    port = layer.find("output/port")
    if port is None:
        raise RuntimeError(f"The graph's layer {layer.attrib['name']} has no output.")
    return layer.attrib["id"], port.attrib["id"]


def _rank(port: Element) -> int:
    return len(port.findall("dim"))


# The hook


def _insert_hook(net: _Net, ids: _Port) -> bool:
    positions, logits = net.parameter("position_ids"), _logits(net)
    # Vision models have three-dimensional positions, which the step layout does not cover.
    if positions is None or logits is None or _rank(net.port(_output(positions))) != 2:
        return False
    hook = net.add(HOOK_TYPE, "extension", [logits, ids, _output(positions)], _vector("FP32", 1))
    # Graph passes remove operations without a result. A result needs a name.
    net.port(_output(hook)).attrib["names"] = "vinery_logits_hook"
    net.add("Result", "opset1", [_output(hook)], None)
    return True


def _logits(net: _Net) -> _Port | None:
    for layer in net.layers:
        if layer.attrib["type"] == "Result":
            source = net.sources(layer)[0]
            if "logits" in net.port(source).attrib.get("names", "").split(","):
                return source
    return None


# Salted token ids


def _insert_modulo(net: _Net, ids: Element, folder: Path) -> tuple[_Port, int] | None:
    """Return the ids that the model reads and their modulus; None if there is no token table.

    The modulus is the number of rows of the embedding table. The graph reads it from the table's
    shape: a constant would have to be written into the weights.
    """
    lookup = _lookup(net, ids)
    if lookup is None:
        return None
    reader, gather = lookup
    table, _, axis = net.sources(gather)
    weights = _constant(net, table)
    if weights is None or not _is_zero(net.layer(axis[0]), folder):
        return None
    for constant in (weights, axis):
        net.put_first(net.layer(constant[0]))
    sizes = _vector("I64", _rank(net.port(weights)))
    shape = net.add("ShapeOf", "opset3", [weights], sizes, output_type="i64")
    # The constant 0 is the axis of the look-up. Here it serves as index into the shape, too.
    rows = net.add("Gather", "opset8", [_output(shape), axis, axis], net.port(axis), batch_dims="0")
    net.port(_output(rows)).attrib["precision"] = "I64"
    plain_ids = _modulo(net, _output(ids), _output(rows))
    # The reader of the ids is a conversion, or the look-up itself, whose input 0 is the table.
    net.redirect(reader, 0 if reader is not gather else 1, plain_ids)
    return plain_ids, int(net.port(weights).findall("dim")[0].text or 0)


def _modulo(net: _Net, ids: _Port, rows: _Port) -> _Port:
    """Insert `ids % rows`, exact for all 32-bit ids.

    The CPU plugin computes remainders and quotients of integers with 32-bit floats, which are
    inexact beyond 2^24. Products and differences are exact. So `ids - ids / rows * rows` may be
    off by a small multiple of `rows`, but it is small, and its remainder is exact.
    """
    like = net.port(ids)

    def insert(kind: str, left: _Port, right: _Port) -> _Port:
        return _output(net.add(kind, "opset1", [left, right], like, auto_broadcast="numpy"))

    product = insert("Multiply", insert("Divide", ids, rows), rows)
    return insert("FloorMod", insert("Subtract", ids, product), rows)


def _lookup(net: _Net, ids: Element) -> tuple[Element, Element] | None:
    """Return the layer that reads the ids on their way to the embedding, and the embedding."""
    for reader, _ in net.consumers(ids):
        following = net.consumers(reader) if reader.attrib["type"] == "Convert" else ()
        for layer, index in ((reader, 1), *following):
            if layer.attrib["type"] == "Gather" and index == 1:
                return reader, layer
    return None


def _is_zero(layer: Element, folder: Path) -> bool:
    """Whether the layer is a constant of zeros, as the axis of a usual look-up is."""
    data = layer.find("data")
    if layer.attrib["type"] != "Const" or data is None:
        return False
    with (folder / MODEL_FILE).with_suffix(".bin").open("rb") as weights:
        weights.seek(int(data.attrib["offset"]))
        return not any(weights.read(int(data.attrib["size"])))


def _constant(net: _Net, source: _Port) -> _Port | None:
    """Return the constant from which an embedding table is decompressed."""
    layer = net.layer(source[0])
    while layer.attrib["type"] != "Const":
        sources = net.sources(layer)
        if layer.attrib["type"] not in _DECOMPRESSION or not sources:
            return None
        layer = net.layer(sources[0][0])
    return _output(layer)
