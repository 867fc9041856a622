"""Finds the models of a model server in config.json, graphs and the command line."""

import ast
import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import lark

from vinery_serving.engine.options import option_value

GRAPH: Final = "graph.pbtxt"
_LLM: Final = "LLMCalculatorOptions"
# Tasks of other graphs, by the beginning of a node's calculator.
_TASKS: Final = {
    "Embeddings": "embeddings",
    "Rerank": "rerank",
    "ImageGen": "pictures",
    "S2t": "transcriptions",
    "T2s": "speech",
}


Value = str | int | float | bool | dict[str, list["Value"]]
Message = dict[str, list[Value]]


class UnreadableSource(Exception):
    """A file or a command line cannot be read. The message is for the administrator."""


@dataclass(frozen=True, slots=True)
class Servable:
    name: str
    folder: Path
    source: str  # where it is defined
    options: Mapping[str, Any] = field(default_factory=dict)
    task: str = "chat"  # anything else has no counterpart as a chat model
    failure: str = ""  # why its graph cannot be read


@dataclass(frozen=True, slots=True)
class Found:
    servables: tuple[Servable, ...] = ()
    server: Mapping[str, str] = field(default_factory=dict)  # flags of the server, by name


@dataclass(frozen=True, slots=True)
class Roots:
    """Folders of a container, and where they are on this machine."""

    pairs: tuple[tuple[str, Path], ...] = ()

    def resolve(self, text: str, base: Path) -> Path:
        """Return the path on this machine; a relative one begins in `base`."""
        for inside, outside in self.pairs:
            if text == inside or text.startswith(f"{inside.rstrip('/')}/"):
                text = str(outside / text[len(inside) :].strip("/"))
                break
        return Path((base / Path(text).expanduser()).resolve())


def read_path(path: Path, roots: Roots) -> Found:
    """Read a config.json, a graph, a folder with either, a repository of models, or a text with a
    command line. Raises `UnreadableSource`."""
    if not path.is_dir():
        return _read_file(path, roots)
    config = path / "config.json"
    if config.is_file() and _is_config(_json(config)):
        return _read_file(config, roots)
    if (path / GRAPH).is_file():
        return _read_file(path / GRAPH, roots)
    graphs = sorted([*path.glob(f"*/{GRAPH}"), *path.glob(f"*/*/{GRAPH}")])
    if not graphs:
        raise UnreadableSource(f"{path} has no config.json of a model server and no {GRAPH}.")
    return Found(
        tuple(
            _one_of_many(each, str(each.parent.relative_to(path)), str(each), roots)
            for each in graphs
        )
    )


def _read_file(path: Path, roots: Roots) -> Found:
    if path.suffix == ".pbtxt":
        return Found((_graph_servable(path, path.parent.resolve().name, str(path), roots),))
    if path.suffix == ".json":
        return Found(tuple(_config_servables(path, _json(path), roots)))
    return read_command(_text(path), roots, base=path.parent)


def read_command(text: str, roots: Roots, *, base: Path = Path()) -> Found:
    """Read the flags of a command line, or of a file that has one. Raises `UnreadableSource`."""
    flags = flags_of(text)
    if not flags:
        raise UnreadableSource("There is no option such as --model_path in this text.")
    if "config_path" in flags:
        path = roots.resolve(flags["config_path"], base)
        servables = _config_servables(path, _json(path), roots)
    else:
        servables = _flag_servables(flags, roots, base)
    return Found(tuple(servables), flags)


def flags_of(text: str) -> dict[str, str]:
    text = text.replace("\\\n", " ")
    words, flags = _words(text), dict[str, str]()
    for word, after in zip(words, [*words[1:], ""], strict=False):
        name, equals, value = word.partition("=")
        if found := re.fullmatch(r"--([a-z][a-z0-9_]+)", name):
            flags[found[1]] = value if equals else "" if after.startswith("--") else after
    return flags


def _words(text: str) -> list[str]:
    """Split as a shell does. Lists of words in YAML and JSON have marks around the words."""
    try:
        words = shlex.split(text, comments=True)
    except ValueError:
        words = text.split()
    stripped = (each.strip("[],") if not each.startswith("{") else each for each in words)
    return [each for each in stripped if each not in ("", "-")]


def _flag_servables(flags: Mapping[str, str], roots: Roots, base: Path) -> Iterator[Servable]:
    repository, source = flags.get("model_repository_path"), flags.get("source_model")
    name = flags.get("model_name") or source
    text = flags.get("model_path") or (f"{repository}/{source or name}" if repository else "")
    if not text or not (source or name or flags.get("model_path")):
        return
    folder = roots.resolve(text, base)
    name = name or folder.name
    task = flags.get("task", "text_generation").replace("text_generation", "chat")
    served = Servable(name, folder, "the command line", {}, task)
    if (folder / GRAPH).is_file():
        served = _graph_servable(folder / GRAPH, name, served.source, roots)
    given = {GRAPH_NAMES.get(key, key): value for key, value in flags.items()}
    options = {key: option_value(value) for key, value in given.items() if key in OF_MODELS}
    yield replace(served, options={**served.options, **options})


# The names of flags in graphs, where they differ.
GRAPH_NAMES: Final = {
    "target_device": "device",
    "draft_model_path": "draft_models_path",
    "draft_source_model": "draft_models_path",
}
OF_MODELS: Final = frozenset(
    {
        *("device", "plugin_config", "cache_size", "max_num_seqs", "max_num_batched_tokens"),
        *("dynamic_split_fuse", "enable_prefix_caching", "kv_cache_precision"),
        *("max_tokens_limit", "best_of_limit", "pipeline_type", "draft_models_path"),
        *("draft_device", "draft_eagle3_mode", "tool_parser", "reasoning_parser"),
        *("enable_tool_guided_generation", "chat_template_mode", "model_distribution_policy"),
        *("max_prompt_len", "cache_interval_multiplier"),
    }
)


def _is_config(document: Any) -> bool:
    lists = ("model_config_list", "mediapipe_config_list")
    return isinstance(document, dict) and any(each in document for each in lists)


def _config_servables(path: Path, document: Any, roots: Roots) -> Iterator[Servable]:
    if not _is_config(document):
        raise UnreadableSource(f"{path} has no model_config_list and no mediapipe_config_list.")
    for each in _entries(document, "mediapipe_config_list", path):
        name = str(each.get("name", ""))
        base = roots.resolve(str(each.get("base_path") or name), path.parent)
        graph = roots.resolve(str(each.get("graph_path") or GRAPH), base)
        yield _one_of_many(graph, name, f"{path}: mediapipe_config_list", roots)
    for each in _entries(document, "model_config_list", path):
        config = each.get("config", {})
        name = str(config.get("name", ""))
        base = roots.resolve(str(config.get("base_path") or name), path.parent)
        source = f"{path}: model_config_list"
        if (base / GRAPH).is_file():
            yield _one_of_many(base / GRAPH, name, source, roots)
        else:
            yield Servable(name, base, source, {}, task="inference of a classic model")


def _entries(document: Mapping[str, Any], key: str, path: Path) -> Sequence[Mapping[str, Any]]:
    entries = document.get(key, [])
    if not isinstance(entries, list) or not all(isinstance(each, dict) for each in entries):
        raise UnreadableSource(f"{key} of {path} must be a list of objects.")
    return entries


def _one_of_many(path: Path, name: str, source: str, roots: Roots) -> Servable:
    """A graph that cannot be read is no reason to leave the others out."""
    try:
        return _graph_servable(path, name, source, roots)
    except UnreadableSource as error:
        hint = " In a container, name its folder here: --map /models=FOLDER"
        failure = f"{error}{'' if path.exists() else hint}"
        return Servable(name, path.parent, source, failure=failure)


def _graph_servable(path: Path, name: str, source: str, roots: Roots) -> Servable:
    """Raises `UnreadableSource`."""
    try:
        return _found_in(parse_graph(_text(path)), path, name, source, roots)
    except (ValueError, RecursionError) as error:
        raise UnreadableSource(f"{path} is not a graph: {error}.") from None


def _found_in(graph: Message, path: Path, name: str, source: str, roots: Roots) -> Servable:
    for node in graph.get("node", []):
        if not isinstance(node, dict):
            continue
        calculator = str(node.get("calculator", [""])[0])
        of_nodes = [each for each in node.get("node_options", []) if isinstance(each, dict)]
        messages = [each[_LLM][0] for each in of_nodes if _LLM in each]
        tasks = [task for start, task in _TASKS.items() if calculator.startswith(start)]
        if messages:
            tasks = ["chat"]
        elif tasks:  # whatever the name of the message is
            messages = [values[0] for each in of_nodes for values in each.values()]
        for task in tasks:
            options = _flat(messages[0]) if messages else {}
            folder = roots.resolve(str(options.pop("models_path", "./")), path.parent)
            return Servable(name, folder, source, options, task)
    return Servable(name, path.parent.resolve(), source, {}, "a graph without a language model")


def _flat(message: Any) -> dict[str, Any]:
    """Return the last value of each field, as protocol buffers do, also in nested messages."""
    if not isinstance(message, dict):
        return {}
    last = {name: values[-1] for name, values in message.items() if values}
    return {key: _flat(each) if isinstance(each, dict) else each for key, each in last.items()}


def _json(path: Path) -> Any:
    try:
        return json.loads(_text(path))
    except ValueError as error:
        raise UnreadableSource(f"{path} is not JSON: {error}.") from None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeError) as error:
        raise UnreadableSource(f"{path} cannot be read: {error}.") from None


# -- The text form of protocol buffers, as far as `graph.pbtxt` files use it. Protobuf's own reader
# needs the descriptions of all messages, which are in MediaPipe and in the model server. Here a
# message is a dictionary of lists: each field may be repeated.

_GRAMMAR: Final = r"""
start: field*
field: (WORD | "[" EXTENSION "]") ":"? (value | several) ("," | ";")?
several: "[" (value ","?)* "]"
?value: message | string | scalar
message: "{" field* "}" | "<" field* ">"
string: STRING+
scalar: WORD
EXTENSION: /[\w.+\/\s-]+/
STRING: /"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'/
WORD: /[-+]?[A-Za-z0-9_.+-]+/
%ignore /\s+|#[^\n]*/
"""


class _Reader(lark.Transformer[lark.Token, Message]):
    def start(self, fields: list[tuple[str, list[Value]]]) -> Message:
        message: Message = {}
        for name, values in fields:
            message.setdefault(name, []).extend(values)
        return message

    message = start

    def several(self, values: list[Value]) -> list[Value]:
        return values

    def field(self, parts: list[Any]) -> tuple[str, list[Value]]:
        """Of the name of an extension, the last part counts."""
        name, value = parts
        if not re.match(r"[A-Za-z_\s]", name):
            raise _unexpected(name, name.line)
        return re.split(r"[./\s]+", name.strip())[-1], value if isinstance(value, list) else [value]

    def string(self, texts: list[lark.Token]) -> str:
        """Texts in a row are one. Raises ValueError for a wrong escape."""
        try:
            return "".join(ast.literal_eval(each) for each in texts)
        except SyntaxError:
            raise _unexpected(texts[0], texts[0].line) from None

    def scalar(self, words: list[lark.Token]) -> Value:
        word = str(words[0])
        if word.lower() in ("true", "t", "false", "f"):
            return word.lower().startswith("t")
        for kind in (int, float):
            with suppress(ValueError):
                return kind(word)
        return word


def parse_graph(text: str) -> Message:
    """Return the message of a file. Raises ValueError with the line of the error."""
    reader = lark.Lark(_GRAMMAR, parser="lalr", transformer=_Reader())
    try:
        message: Any = reader.parse(text)
    except lark.UnexpectedInput as error:
        found = getattr(error, "token", "") or getattr(error, "char", "")
        raise _unexpected(found, error.line) from None
    return dict(message)


def _unexpected(found: str, line: int | None) -> ValueError:
    return ValueError(f"line {line}: {found or 'the end'} is not expected")
