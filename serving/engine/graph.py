"""Writes a copy of a model's folder whose graph has a logits hook and takes salted token ids.

Only the graph's XML is written anew, beside links to the weights and the other files.

- The **logits hook** (`serving/engine/logits_hook`) is an operation on the logits, the token ids
  and the positions of a step. It is a side branch: the logits do not pass through it. A step
  without a callback only pays for an empty call.
- For **salts**, token ids are taken modulo the vocabulary size. A prompt whose first ids are
  raised by a multiple of it means the same to the model, but shares nothing with other prompts
  in the prefix cache (`serving/engine/prefix_cache`).
"""

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple
from xml.etree.ElementTree import Element, ParseError, SubElement, parse

MODEL_FILE: Final = "openvino_model.xml"
HOOK_TYPE: Final = "LogitsHook"  # the name of the operation's class
# Layers between a compressed embedding table and its use.
_DECOMPRESSION: Final = frozenset(("Convert", "Subtract", "Multiply", "Reshape"))
# The CPU plugin computes with 32 bits for token ids.
_MAX_TOKEN_ID: Final = 2**31 - 1


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
    net = _Net(folder)
    parameter = net.parameter("input_ids")
    if parameter is None:
        return GraphFeatures()
    ids, salt_modulus = _insert_modulo(net, parameter) or (parameter, 0)
    if not (_insert_hook(net, ids) if has_logits_hook else salt_modulus):
        return GraphFeatures()
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for file in folder.iterdir():
        if file.name != MODEL_FILE:
            (target / file.name).symlink_to(file.resolve())
    net.tree.write(target / MODEL_FILE)
    return GraphFeatures(has_logits_hook, salt_modulus)


class _Output(NamedTuple):
    """An output of a layer; `port` describes it."""

    layer: Element
    port: Element

    def is_named(self, name: str) -> bool:
        return name in self.port.attrib.get("names", "").split(",")

    @property
    def sizes(self) -> list[str]:
        return [dim.text or "" for dim in self.port.findall("dim")]


class _Net:
    """The XML of a graph. OpenVINO sorts the layers by their edges when it reads them."""

    def __init__(self, folder: Path) -> None:
        """Raises RuntimeError if the folder's file is not a graph."""
        self.folder = folder
        try:
            self.tree = parse(folder / MODEL_FILE)
        except ParseError as error:
            message = f"{folder / MODEL_FILE} is not an OpenVINO graph: {error}."
            raise RuntimeError(message) from None
        root = self.tree.getroot()
        self._layers = root.find("layers") or Element("layers")
        self._edges = root.find("edges") or Element("edges")
        self._by_id = {layer.attrib["id"]: layer for layer in self._layers}

    def parameter(self, name: str) -> _Output | None:
        """Return the graph's input of this name."""
        outputs = map(_output, self._layers.iterfind("layer[@type='Parameter']"))
        return next((output for output in outputs if output.is_named(name)), None)

    def result(self, name: str) -> _Output | None:
        """Return the output that becomes the graph's result of this name."""
        results = self._layers.iterfind("layer[@type='Result']")
        outputs = (self.sources(result)[0] for result in results)
        return next((output for output in outputs if output.is_named(name)), None)

    def sources(self, layer: Element) -> list[_Output]:
        """Return the outputs that the layer reads, in the order of its ports."""
        return [self._source(edge) for edge in self._edges_to(layer)]

    def readers(self, layer: Element) -> Iterator[tuple[Element, int]]:
        """Yield the layers that read this layer, each with the index of that input."""
        for edge in self._edges.findall(f"edge[@from-layer='{layer.attrib['id']}']"):
            reader = self._by_id[edge.attrib["to-layer"]]
            yield reader, self._edges_to(reader).index(edge)

    def redirect(self, reader: Element, index: int, output: _Output) -> None:
        """Let a layer read its input `index` from another output."""
        self._edges_to(reader)[index].attrib.update(_edge_from(output))

    def add(
        self,
        kind: str,
        version: str,
        inputs: Sequence[_Output],
        output: Element | None = None,
        **data: str,
    ) -> Element:
        """Add a layer with one output like `output`, or without one."""
        id_ = str(1 + max(map(int, self._by_id)))
        attributes = {"id": id_, "name": f"vinery_{id_}", "type": kind, "version": version}
        layer = self._by_id[id_] = SubElement(self._layers, "layer", attributes)
        if data:
            SubElement(layer, "data", data)
        ports = SubElement(layer, "input")
        for index, source in enumerate(inputs):
            ports.append(_port_like(source.port, str(index)))
            to = {"to-layer": id_, "to-port": str(index)}
            SubElement(self._edges, "edge", _edge_from(source) | to)
        if output is not None:
            SubElement(layer, "output").append(_port_like(output, str(len(inputs))))
        return layer

    def _source(self, edge: Element) -> _Output:
        layer, id_ = self._by_id[edge.attrib["from-layer"]], edge.attrib["from-port"]
        for port in layer.iterfind("output/port"):
            if port.attrib["id"] == id_:
                return _Output(layer, port)
        raise RuntimeError(f"The graph has no output {id_} on layer {layer.attrib['id']}.")

    def _edges_to(self, layer: Element) -> list[Element]:
        edges = self._edges.findall(f"edge[@to-layer='{layer.attrib['id']}']")
        return sorted(edges, key=lambda edge: int(edge.attrib["to-port"]))


def _output(layer: Element) -> _Output:
    """Return the first output of a layer. Raises RuntimeError if it has none."""
    port = layer.find("output/port")
    if port is None:
        raise RuntimeError(f"The graph's layer {layer.attrib['name']} has no output.")
    return _Output(layer, port)


def _edge_from(output: _Output) -> dict[str, str]:
    return {"from-layer": output.layer.attrib["id"], "from-port": output.port.attrib["id"]}


def _port_like(port: Element, id_: str) -> Element:
    copy = Element("port", {"id": id_, "precision": port.attrib.get("precision", "I64")})
    copy.extend(port.findall("dim"))
    return copy


def _vector(precision: str, length: int) -> Element:
    port = Element("port", {"precision": precision})
    SubElement(port, "dim").text = str(length)
    return port


def _insert_hook(net: _Net, ids: _Output) -> bool:
    positions, logits = net.parameter("position_ids"), net.result("logits")
    # Vision models have three-dimensional positions, which the step layout does not cover.
    if positions is None or logits is None or len(positions.sizes) != 2:
        return False
    hook = net.add(HOOK_TYPE, "extension", [logits, ids, positions], _vector("FP32", 1))
    # Graph passes remove operations without a result. A result needs a name.
    _output(hook).port.attrib["names"] = "vinery_logits_hook"
    net.add("Result", "opset1", [_output(hook)])
    return True


def _insert_modulo(net: _Net, ids: _Output) -> tuple[_Output, int] | None:
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
    if weights is None or not _is_zero(axis.layer, net.folder):
        return None
    sizes = _vector("I64", len(weights.sizes))
    shape = net.add("ShapeOf", "opset3", [weights], sizes, output_type="i64")
    # The constant 0 is the axis of the look-up. Here it serves as index into the shape, too.
    inputs = [_output(shape), axis, axis]
    rows = _output(net.add("Gather", "opset8", inputs, axis.port, batch_dims="0"))
    rows.port.attrib["precision"] = "I64"
    plain_ids = _modulo(net, ids, rows)
    # The reader of the ids is a conversion, or the look-up itself, whose input 0 is the table.
    net.redirect(reader, 0 if reader is not gather else 1, plain_ids)
    return plain_ids, int(weights.sizes[0])


def _modulo(net: _Net, ids: _Output, rows: _Output) -> _Output:
    """Insert `ids % rows`, exact for all 32-bit ids.

    The CPU plugin computes remainders and quotients of integers with 32-bit floats, which are
    inexact beyond 2^24. Products and differences are exact. So `ids - ids / rows * rows` may be
    off by a small multiple of `rows`, but it is small, and its remainder is exact.
    """

    def insert(kind: str, left: _Output, right: _Output) -> _Output:
        return _output(net.add(kind, "opset1", [left, right], ids.port, auto_broadcast="numpy"))

    product = insert("Multiply", insert("Divide", ids, rows), rows)
    return insert("FloorMod", insert("Subtract", ids, product), rows)


def _lookup(net: _Net, ids: _Output) -> tuple[Element, Element] | None:
    """Return the layer that reads the ids on their way to the embedding, and the embedding."""
    for reader, _ in net.readers(ids.layer):
        following = net.readers(reader) if reader.attrib["type"] == "Convert" else ()
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


def _constant(net: _Net, output: _Output) -> _Output | None:
    """Return the constant from which an embedding table is decompressed."""
    while output.layer.attrib["type"] != "Const":
        sources = net.sources(output.layer)
        if output.layer.attrib["type"] not in _DECOMPRESSION or not sources:
            return None
        output = sources[0]
    return output
