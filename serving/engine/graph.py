"""Writes a twin of a model's folder, whose graph lets the engine look into each step.

Two things are added, and the weights are not touched: only the graph's description is
written anew, beside a link to them.

- A **tap** (`serving.engine.logits_hook`): an operation on the logits, the token ids and the
  positions of a step. It stands beside the way from the logits to the result, not in it, so
  that a step in which nobody looks costs one empty call.
- A **salt**: token ids are taken modulo the size of the vocabulary. A prompt whose first id
  is raised by a multiple of it means the same to the model, but not to the prefix cache,
  which then has nothing of it: the way to have every token of a prompt computed.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from xml.etree.ElementTree import Element, ElementTree, ParseError, SubElement, parse

MODEL_FILE: Final = "openvino_model.xml"
TAP_TYPE: Final = "LogitsHook"
# What may stand between a compressed embedding table and its use.
_DECOMPRESSION: Final = frozenset(("Convert", "Subtract", "Multiply", "Reshape"))
# The CPU plugin computes with 32 bits for token ids.
_MAX_TOKEN_ID: Final = 2**31 - 1

# A layer's output: ids of the layer and of the port.
_Port = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Twin:
    """What the twin's graph can do."""

    has_logits_hook: bool
    # The number of tokens that ids are taken modulo; 0: there is no salt.
    salt_modulus: int

    @property
    def num_salts(self) -> int:
        """How many different salts a token id has room for."""
        return _MAX_TOKEN_ID // self.salt_modulus - 1 if self.salt_modulus else 0


def write_twin(folder: Path, target: Path, *, has_logits_hook: bool = True) -> Twin:
    """Make `target` a copy of the model folder with tap and salt in its graph, or with the
    salt alone.

    A graph without two-dimensional `position_ids` or without `logits` gets no tap, and then
    nothing is written. All files but the graph are links, so this is quick and small for any
    model. Raises RuntimeError for a file that is no graph.
    """
    net = _Net(_read(folder / MODEL_FILE))
    parameter = net.parameter("input_ids")
    if parameter is None:
        return Twin(has_logits_hook=False, salt_modulus=0)
    ids, salt_modulus = _insert_salt(net, parameter, folder) or (_output(parameter), 0)
    if not (_insert_tap(net, ids) if has_logits_hook else salt_modulus):
        return Twin(has_logits_hook=False, salt_modulus=0)
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for file in folder.iterdir():
        if file.name != MODEL_FILE:
            (target / file.name).symlink_to(file.resolve())
    ElementTree(net.root).write(target / MODEL_FILE)
    return Twin(has_logits_hook=has_logits_hook, salt_modulus=salt_modulus)


def _read(file: Path) -> Element:
    try:
        return parse(file).getroot()
    except ParseError as error:
        raise RuntimeError(f"{file} is not an OpenVINO graph: {error}.") from None


class _Net:
    """The XML of a graph: layers in an order in which each follows its inputs, and edges."""

    def __init__(self, root: Element) -> None:
        self.root = root
        self.layers = root.find("layers") or Element("layers")
        self._edges = root.find("edges") or Element("edges")
        self._by_id = {layer.attrib["id"]: layer for layer in self.layers}
        self._next_id = 1 + max((int(id_) for id_ in self._by_id), default=0)

    def layer(self, id_: str) -> Element:
        return self._by_id[id_]

    def parameter(self, name: str) -> Element | None:
        """The graph's input of this name."""
        for layer in self.layers:
            if layer.attrib["type"] == "Parameter" and name in _tensor_names(layer):
                return layer
        return None

    def sources(self, layer: Element) -> list[_Port]:
        """Where its inputs come from, in the order of its ports."""
        found = [edge for edge in self._edges if edge.attrib["to-layer"] == layer.attrib["id"]]
        found.sort(key=lambda edge: int(edge.attrib["to-port"]))
        return [(edge.attrib["from-layer"], edge.attrib["from-port"]) for edge in found]

    def consumers(self, layer: Element) -> Iterator[tuple[Element, int]]:
        """The layers that read it, each with the place of that input among its inputs."""
        for edge in self._edges:
            if edge.attrib["from-layer"] == layer.attrib["id"]:
                reader = self.layer(edge.attrib["to-layer"])
                source = (edge.attrib["from-layer"], edge.attrib["from-port"])
                yield reader, self.sources(reader).index(source)

    def port(self, source: _Port) -> Element:
        """The element that describes an output."""
        for port in self.layer(source[0]).findall("output/port"):
            if port.attrib["id"] == source[1]:
                return port
        raise RuntimeError(f"The graph has no output {source[1]} on layer {source[0]}.")

    def redirect(self, reader: Element, at: int, source: _Port) -> None:
        """Let a layer read its input number `at` from another output."""
        edges = [edge for edge in self._edges if edge.attrib["to-layer"] == reader.attrib["id"]]
        edges.sort(key=lambda edge: int(edge.attrib["to-port"]))
        edges[at].attrib.update({"from-layer": source[0], "from-port": source[1]})

    def put_first(self, constant: Element) -> None:
        """Constants follow nothing, so they may stand before everything that reads them."""
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
        """A new layer behind its inputs; `output` describes its only output, if it has one."""
        id_ = str(self._next_id)
        self._next_id += 1
        layer = Element(
            "layer", {"id": id_, "name": f"vinery_{id_}", "type": kind, "version": version}
        )
        if data:
            SubElement(layer, "data", data)
        ports = SubElement(layer, "input")
        for at, source in enumerate(inputs):
            ports.append(_port_like(self.port(source), str(at)))
            edge = {"from-layer": source[0], "from-port": source[1]}
            SubElement(self._edges, "edge", {**edge, "to-layer": id_, "to-port": str(at)})
        if output is not None:
            SubElement(layer, "output").append(_port_like(output, str(len(inputs))))
        order = list(self.layers)
        at = 1 + max(order.index(self.layer(source[0])) for source in inputs)
        self.layers.insert(at, layer)
        self._by_id[id_] = layer
        return layer


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


# The tap


def _insert_tap(net: _Net, ids: _Port) -> bool:
    positions, logits = net.parameter("position_ids"), _logits(net)
    # Vision models have positions of a third dimension, which have other rules.
    if positions is None or logits is None or _rank(net.port(_output(positions))) != 2:
        return False
    tap = net.add(TAP_TYPE, "extension", [logits, ids, _output(positions)], _vector("FP32", 1))
    # Without a result the tap would be removed as useless, and a result needs a name.
    net.port(_output(tap)).attrib["names"] = "vinery_tap"
    net.add("Result", "opset1", [_output(tap)], None)
    return True


def _logits(net: _Net) -> _Port | None:
    for layer in net.layers:
        if layer.attrib["type"] == "Result":
            source = net.sources(layer)[0]
            if "logits" in net.port(source).attrib.get("names", "").split(","):
                return source
    return None


# The salt


def _insert_salt(net: _Net, ids: Element, folder: Path) -> tuple[_Port, int] | None:
    """The ids as the model gets them, and their modulus; None for a graph without a table.

    The modulus is the number of rows of the embedding table, and the graph itself reads it
    off the table: a constant of our own would have to be written into the weights.
    """
    lookup = _lookup(net, ids)
    if lookup is None:
        return None
    reader, gather = lookup
    table, _, axis = net.sources(gather)
    weights = _origin(net, table)
    if weights is None or not _is_zero(net.layer(axis[0]), folder):
        return None
    for constant in (weights, axis):
        net.put_first(net.layer(constant[0]))
    sizes = _vector("I64", _rank(net.port(weights)))
    shape = net.add("ShapeOf", "opset3", [weights], sizes, output_type="i64")
    # The table is looked up along axis 0, and place 0 of its shape is wanted here: the same
    # constant serves as both.
    rows = net.add("Gather", "opset8", [_output(shape), axis, axis], net.port(axis), batch_dims="0")
    net.port(_output(rows)).attrib["precision"] = "I64"
    meant = _modulo(net, _output(ids), _output(rows))
    # The reader of the ids is a conversion, or the look-up itself with the table first.
    net.redirect(reader, 0 if reader is not gather else 1, meant)
    return meant, int(net.port(weights).findall("dim")[0].text or 0)


def _modulo(net: _Net, ids: _Port, rows: _Port) -> _Port:
    """`ids % rows`, exact for all that the plugin has room for.

    The CPU plugin computes remainders and quotients of integers with 32-bit floats, which
    beyond 2^24 are off by a little, and products and differences as they are. So what the
    quotient tells to take away leaves a small number, not always the right one, and of that
    the remainder is exact.
    """
    like = net.port(ids)

    def numpy(kind: str, left: _Port, right: _Port) -> _Port:
        return _output(net.add(kind, "opset1", [left, right], like, auto_broadcast="numpy"))

    times = numpy("Multiply", numpy("Divide", ids, rows), rows)
    return numpy("FloorMod", numpy("Subtract", ids, times), rows)


def _lookup(net: _Net, ids: Element) -> tuple[Element, Element] | None:
    """The layer that reads the ids on their way to the embedding, and the embedding."""
    for reader, _ in net.consumers(ids):
        following = net.consumers(reader) if reader.attrib["type"] == "Convert" else ()
        for layer, at in ((reader, 1), *following):
            if layer.attrib["type"] == "Gather" and at == 1:
                return reader, layer
    return None


def _is_zero(layer: Element, folder: Path) -> bool:
    """Whether it is a constant of nothing but zeros, as the axis of a usual look-up is."""
    data = layer.find("data")
    if layer.attrib["type"] != "Const" or data is None:
        return False
    with (folder / MODEL_FILE).with_suffix(".bin").open("rb") as weights:
        weights.seek(int(data.attrib["offset"]))
        return not any(weights.read(int(data.attrib["size"])))


def _origin(net: _Net, source: _Port) -> _Port | None:
    """The constant that an embedding table is decompressed from."""
    layer = net.layer(source[0])
    while layer.attrib["type"] != "Const":
        sources = net.sources(layer)
        if layer.attrib["type"] not in _DECOMPRESSION or not sources:
            return None
        layer = net.layer(sources[0][0])
    return _output(layer)
