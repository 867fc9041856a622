"""Writes a copy of a model's folder whose graph has a logits hook and takes salted token ids.

Only the graph's XML is written anew, beside links to the weights and the other files. The **logits
hook** (`engine/logits_handler`) is a side branch on the logits, the token ids and the positions of
a step. For **salts** (`engine/prefix_cache`), token ids are taken modulo the vocabulary size. In a
vision model the prefix cache sees embeddings: there the embedding of an id raised n times is larger
by n / 2^23, in the last bits of its numbers.

The copy is kept for the next start, with a note of its sources. The note is removed before the copy
is written anew, so an unfinished copy has no note.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple
from xml.etree.ElementTree import Element, ParseError, SubElement, parse

import msgspec
import openvino

from vinery_serving.core.model_files import FolderState, folder_state

MODEL_FILE: Final = "openvino_model.xml"
LANGUAGE_FILE: Final = "openvino_language_model.xml"  # of a vision model
EMBEDDINGS_FILE: Final = "openvino_text_embeddings_model.xml"
HOOK_TYPE: Final = "LogitsHook"  # the name of the operation's class
# Layers between a compressed embedding table and its use.
_DECOMPRESSION: Final = frozenset(("Convert", "Subtract", "Multiply", "Reshape"))
_MAX_TOKEN_ID: Final = 2**31 - 1  # the CPU plugin computes with 32 bits for token ids
MAX_DRAFT: Final = 16
# So many that no number of an embedding changes by more than 1/32768 of it.
_MAX_EMBEDDED_SALTS: Final = 255
# The code on which a copy depends beside its folder: copies are tried on a device.
_CODE: Final = tuple(map(Path, (__file__, openvino.__file__)))


@dataclass(frozen=True, slots=True)
class GraphFeatures:
    has_logits_hook: bool = False
    salt_modulus: int = 0  # token ids are taken modulo this; 0: salts are not supported
    is_vision: bool = False
    vocab_size: int = 0  # the width of the logits; 0: unknown
    bounds_drafts: bool = False  # whether a confident draft has at most `MAX_DRAFT` tokens

    @property
    def num_salts(self) -> int:
        num_salts = _MAX_TOKEN_ID // self.salt_modulus - 1 if self.salt_modulus else 0
        return min(num_salts, _MAX_EMBEDDED_SALTS) if self.is_vision else num_salts


class _Note(msgspec.Struct, frozen=True):
    source: FolderState
    features: GraphFeatures


def kept(folder: Path, target: Path, write: Callable[[], GraphFeatures]) -> GraphFeatures:
    """Return the features of the copy `target` of a folder. `write` makes the copy anew if the
    folder or this code has changed, and makes no copy without features."""
    note_path, source = target.with_name(f"{target.name}.json"), folder_state((folder, *_CODE))
    with suppress(OSError, msgspec.MsgspecError):
        note = msgspec.json.decode(note_path.read_bytes(), type=_Note)
        if note.source == source:
            return note.features
    note_path.unlink(missing_ok=True)
    features = write()
    if target.is_dir():
        draft = note_path.with_suffix(".draft")
        draft.write_bytes(msgspec.json.encode(_Note(source, features)))
        draft.rename(note_path)
    return features


def is_vision_folder(folder: Path) -> bool:
    return (folder / EMBEDDINGS_FILE).is_file()


def write_hooked_folder(folder: Path, target: Path) -> GraphFeatures:
    """Make `target` a copy of a model folder with hook and salts. Returns what the copy supports.
    The hook needs `logits` and two-dimensional `position_ids`; without them no copy is written.
    Raises RuntimeError for a file that is not a graph."""
    net = _Net(folder / MODEL_FILE)
    parameter = net.parameter("input_ids")
    if parameter is None:
        return GraphFeatures()
    ids, salt_modulus = _insert_modulo(net, parameter) or (parameter, 0)
    if not _insert_hook(net, ids):
        return GraphFeatures()
    _write_copy(folder, target, net)
    return GraphFeatures(True, salt_modulus, vocab_size=_vocab_size(net))


def write_draft_folder(folder: Path, target: Path) -> GraphFeatures:
    """Make `target` a copy of a draft model's folder with salts, and with bounded drafts if the
    graph can have any. Returns and raises what `write_hooked_folder` does."""
    net = _Net(folder / MODEL_FILE)
    parameter = net.parameter("input_ids")
    inserted = None if parameter is None else _insert_modulo(net, parameter)
    if inserted is None:
        return GraphFeatures()
    bounds_drafts = _insert_doubt(net, _inserted_modulus(net, inserted[0]))
    _write_copy(folder, target, net)
    return GraphFeatures(salt_modulus=inserted[1], bounds_drafts=bounds_drafts)


def write_vision_folder(
    folder: Path, target: Path, *, has_logits_hook: bool = True
) -> GraphFeatures:
    """Make `target` a copy of a vision model's folder with salts, and with the hook if wanted and
    possible. Returns what the copy supports. Raises RuntimeError for a file that is not a graph."""
    language, embeddings = _Net(folder / LANGUAGE_FILE), _Net(folder / EMBEDDINGS_FILE)
    is_hooked = has_logits_hook and _insert_hook(language, None)
    parameter = embeddings.parameter("input") or embeddings.parameter("input_ids")
    salt_modulus = 0 if parameter is None else _insert_embedded_salts(embeddings, parameter)
    _write_copy(folder, target, language, embeddings)
    size = _vocab_size(language)
    return GraphFeatures(is_hooked, salt_modulus, is_vision=True, vocab_size=size)


def _write_copy(folder: Path, target: Path, *nets: _Net) -> None:
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    written = {net.path.name for net in nets}
    for file in folder.iterdir():
        if file.name not in written:
            (target / file.name).symlink_to(file.resolve())
    for net in nets:
        net.tree.write(target / net.path.name)


class _Output(NamedTuple):
    layer: Element
    port: Element

    def is_named(self, name: str) -> bool:
        return name in self.port.attrib.get("names", "").split(",")

    @property
    def sizes(self) -> list[str]:
        return [dim.text or "" for dim in self.port.findall("dim")]


class _Net:
    """The XML of a graph. OpenVINO sorts the layers by edges on reading."""

    def __init__(self, path: Path) -> None:
        """Raises RuntimeError if the file is not a graph."""
        self.path = path
        try:
            self.tree = parse(path)
        except ParseError as error:
            raise RuntimeError(f"{path} is not an OpenVINO graph: {error}.") from None
        root = self.tree.getroot()
        self._layers = root.find("layers") or Element("layers")
        self._edges = root.find("edges") or Element("edges")
        self._by_id = {layer.attrib["id"]: layer for layer in self._layers}

    def parameter(self, name: str) -> _Output | None:
        outputs = map(_output, self._layers.iterfind("layer[@type='Parameter']"))
        return next((output for output in outputs if output.is_named(name)), None)

    def result(self, name: str) -> _Output | None:
        results = self._layers.iterfind("layer[@type='Result']")
        outputs = (self.sources(result)[0] for result in results)
        return next((output for output in outputs if output.is_named(name)), None)

    def sources(self, layer: Element) -> list[_Output]:
        return [self._source(edge) for edge in self._incoming_edges(layer)]

    def readers(self, layer: Element) -> Iterator[tuple[Element, int]]:
        for edge in self._edges.findall(f"edge[@from-layer='{layer.attrib['id']}']"):
            reader = self._by_id[edge.attrib["to-layer"]]
            yield reader, self._incoming_edges(reader).index(edge)

    def redirect(self, reader: Element, index: int, output: _Output) -> None:
        self._incoming_edges(reader)[index].attrib.update(_edge_source(output))

    def add(
        self,
        kind: str,
        version: str,
        inputs: Sequence[_Output],
        output: Element | None = None,
        **data: str,
    ) -> Element:
        id_ = str(1 + max(map(int, self._by_id)))
        attributes = {"id": id_, "name": f"vinery_{id_}", "type": kind, "version": version}
        layer = self._by_id[id_] = SubElement(self._layers, "layer", attributes)
        if data:
            SubElement(layer, "data", data)
        ports = SubElement(layer, "input")
        for index, source in enumerate(inputs):
            ports.append(_port_like(source.port, str(index)))
            to = {"to-layer": id_, "to-port": str(index)}
            SubElement(self._edges, "edge", _edge_source(source) | to)
        if output is not None:
            SubElement(layer, "output").append(_port_like(output, str(len(inputs))))
        return layer

    def compute(
        self, kind: str, *inputs: _Output, like: Element | None = None, **data: str
    ) -> _Output:
        """Add an operation of numbers. The output is as `like`; None: as the first input."""
        data |= {"auto_broadcast": "numpy"} if len(inputs) == 2 else {}
        return _output(self.add(kind, "opset1", inputs, like or inputs[0].port, **data))

    def as_float(self, value: _Output) -> _Output:
        like = _port_like(value.port, "0", "FP32")
        return self.compute("Convert", value, like=like, destination_type="f32")

    def as_column(self, values: _Output, axis: _Output) -> _Output:
        """Add a dimension of 1 behind the others. `axis` is its number."""
        column = Element("port", {"precision": "FP32"})
        column.extend([*values.port.findall("dim"), _dim(1)])
        return _output(self.add("Unsqueeze", "opset1", [values, axis], column))

    def _source(self, edge: Element) -> _Output:
        layer, id_ = self._by_id[edge.attrib["from-layer"]], edge.attrib["from-port"]
        for port in layer.iterfind("output/port"):
            if port.attrib["id"] == id_:
                return _Output(layer, port)
        raise RuntimeError(f"The graph has no output {id_} on layer {layer.attrib['id']}.")

    def _incoming_edges(self, layer: Element) -> list[Element]:
        edges = self._edges.findall(f"edge[@to-layer='{layer.attrib['id']}']")
        return sorted(edges, key=lambda edge: int(edge.attrib["to-port"]))


def _output(layer: Element) -> _Output:
    """Return the first output of a layer. Raises RuntimeError if it has none."""
    port = layer.find("output/port")
    if port is None:
        raise RuntimeError(f"The graph's layer {layer.attrib['name']} has no output.")
    return _Output(layer, port)


def _edge_source(output: _Output) -> dict[str, str]:
    return {"from-layer": output.layer.attrib["id"], "from-port": output.port.attrib["id"]}


def _port_like(port: Element, id_: str, precision: str | None = None) -> Element:
    precision = precision or port.attrib.get("precision", "I64")
    copy = Element("port", {"id": id_, "precision": precision})
    copy.extend(port.findall("dim"))
    return copy


def _vector(precision: str, length: int) -> Element:
    port = Element("port", {"precision": precision})
    port.append(_dim(length))
    return port


def _dim(length: int) -> Element:
    dim = Element("dim")
    dim.text = str(length)
    return dim


def _insert_hook(net: _Net, ids: _Output | None) -> bool:
    """Insert the hook; `ids` are None in a vision model. Returns whether the graph can have it."""
    positions, logits = net.parameter("position_ids"), net.result("logits")
    if positions is None or logits is None or (ids is not None and len(positions.sizes) != 2):
        return False
    inputs = [logits, positions] if ids is None else [logits, ids, positions]
    hook = net.add(HOOK_TYPE, "extension", inputs, _vector("FP32", 1))
    # Graph passes remove operations without a result. A result needs a name.
    _output(hook).port.attrib["names"] = "vinery_logits_hook"
    net.add("Result", "opset1", [_output(hook)])
    return True


def _insert_doubt(net: _Net, rows: _Output) -> bool:
    """Make all tokens nearly as likely, in their order, behind the last position of each
    `MAX_DRAFT`: no confidence reaches a threshold there, so a draft ends. Returns whether the graph
    can have it. Constants are computed of `rows`, a number above 0, as for salts."""
    positions, logits = net.parameter("position_ids"), net.result("logits")
    head = None if logits is None else logits.layer
    while head is not None and head.attrib["type"] in ("Convert", "Add"):
        head = net.sources(head)[0].layer
    if positions is None or len(positions.sizes) != 2 or head is None:
        return False
    states = net.sources(head)[0] if head.attrib["type"] == "MatMul" else None
    if states is None or states.port.attrib.get("precision") != "FP32":
        return False

    def number(value: int) -> _Output:
        negative = net.compute("Negative", rows)
        return net.compute("Clamp", negative, min=str(value), max=str(value + 1))

    phase = net.compute("FloorMod", positions, number(MAX_DRAFT))
    behind = net.compute("Subtract", phase, number(MAX_DRAFT - 2))
    is_last = net.as_float(net.compute("Clamp", behind, min="0", max="1"))
    loss = net.compute("Clamp", is_last, min="0", max="0.999")
    factor = net.compute("Subtract", net.as_float(number(1)), loss, like=loss.port)
    net.redirect(head, 0, net.compute("Multiply", states, net.as_column(factor, number(2))))
    return True


def _vocab_size(net: _Net) -> int:
    logits = net.result("logits")
    sizes = [] if logits is None else logits.sizes
    return max(0, int(sizes[-1])) if sizes else 0


def _insert_embedded_salts(net: _Net, ids: _Output) -> int:
    """Multiply each embedding by 1 + n / 2^23, where its id was raised n times. Returns the modulus
    of the ids; 0 if the graph is not a plain look-up. A constant would have to be written into the
    weights, so the numbers are computed."""
    lookup = _lookup(net, ids)
    inserted = _insert_modulo(net, ids)
    if lookup is None or inserted is None:
        return 0
    plain_ids, modulus = inserted
    _, gather = lookup
    embedded = _scaled(net, gather)
    embedding, rows = _output(embedded), _inserted_modulus(net, plain_ids)
    zero = net.sources(gather)[2]

    raised = net.as_float(net.compute("Subtract", ids, plain_ids))
    rows_f = net.as_float(rows)
    times = net.compute("Divide", raised, rows_f)
    one = net.compute("Divide", rows_f, rows_f)
    # A clamped 0 is the lower limit.
    step = net.compute("Clamp", net.as_float(zero), min="1.1920928955078125e-07", max="1")
    factor = net.compute("Add", net.compute("Multiply", times, step), one)
    one_axis = net.compute("Divide", rows, rows)
    factors = net.as_column(factor, net.compute("Add", one_axis, one_axis))
    readers = list(net.readers(embedded))
    salted = net.compute("Multiply", embedding, factors)
    salted.port.attrib["names"] = embedding.port.attrib.pop("names", "")
    for reader, index in readers:
        net.redirect(reader, index, salted)
    return modulus


def _scaled(net: _Net, layer: Element) -> Element:
    """Return the layer behind all products after this layer, such as Gemma's with a constant: each
    product would round the last bits again."""
    while [reader.attrib["type"] for reader, _ in net.readers(layer)] == ["Multiply"]:
        layer, _ = next(net.readers(layer))
    return layer


def _inserted_modulus(net: _Net, plain_ids: _Output) -> _Output:
    """The modulus of `_insert_modulo`: the second input of the remainder."""
    return net.sources(plain_ids.layer)[1]


def _insert_modulo(net: _Net, ids: _Output) -> tuple[_Output, int] | None:
    """Return the ids that the model reads and their modulus; None if there is no token table. The
    modulus is the number of rows of the embedding table. The graph reads it from the table's shape:
    a constant would have to be written into the weights."""
    lookup = _lookup(net, ids)
    if lookup is None:
        return None
    reader, gather = lookup
    table, _, axis = net.sources(gather)
    weights = _constant(net, table)
    if weights is None or not _is_zero(axis.layer, net.path):
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
    """Insert `ids % rows`, exact for all 32-bit ids. The CPU plugin computes remainders and
    quotients of integers with 32-bit floats, which are inexact beyond 2^24. Products and
    differences are exact. So `ids - ids / rows * rows` may be off by a small multiple of `rows`,
    but is small, and has an exact remainder."""
    product = net.compute("Multiply", net.compute("Divide", ids, rows), rows)
    return net.compute("FloorMod", net.compute("Subtract", ids, product), rows)


def _lookup(net: _Net, ids: _Output) -> tuple[Element, Element] | None:
    for reader, _ in net.readers(ids.layer):
        following = net.readers(reader) if reader.attrib["type"] == "Convert" else ()
        for layer, index in ((reader, 1), *following):
            if layer.attrib["type"] == "Gather" and index == 1:
                return reader, layer
    return None


def _is_zero(layer: Element, path: Path) -> bool:
    data = layer.find("data")
    if layer.attrib["type"] != "Const" or data is None:
        return False
    with path.with_suffix(".bin").open("rb") as weights:
        weights.seek(int(data.attrib["offset"]))
        return not any(weights.read(int(data.attrib["size"])))


def _constant(net: _Net, output: _Output) -> _Output | None:
    while output.layer.attrib["type"] != "Const":
        sources = net.sources(output.layer)
        if output.layer.attrib["type"] not in _DECOMPRESSION or not sources:
            return None
        output = sources[0]
    return output
