"""XGrammar's structural tags, as clients write them.

The engine takes no notice of members that it does not know, and translates schemas and
regular expressions in its own way. So every tag is read here first: what the engine would
pass over is refused with its path, and schemas and patterns become grammars of our own.

The forms are `{"type": "structural_tag", "format": {...}}`, the older one with `structures`
and `triggers`, and a bare format, as OVMS takes it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from serving.constraints.family import Shape
from serving.constraints.shapes import json_tag, regex_shape
from serving.core.errors import InvalidGrammar

# Tags nest; deeper ones are no hand's work, and readers recurse.
_MAX_NESTING: Final = 30


def tag_shape(tag: Any, *, param: str, is_strict: bool) -> Shape:
    """The format of a structural tag. Raises `InvalidGrammar` with the path of what is wrong
    in it, and `UnsupportedParameter` as `json_tag` does."""
    reader = _Reader(is_strict=is_strict)
    if not isinstance(tag, dict):
        raise InvalidGrammar(f"`{param}` must be an object.", param=param)
    if tag.get("type", "structural_tag") != "structural_tag":
        return reader.shape(tag, param)
    if "format" in tag:
        return reader.shape(tag["format"], f"{param}.format")
    return reader.old_shape(tag, param)


@dataclass(frozen=True, slots=True)
class _Reader:
    is_strict: bool

    def shape(self, tag: Any, path: str, depth: int = 0) -> Shape:
        """A format of any type."""
        if not isinstance(tag, dict):
            raise _wrong(path, "must be an object")
        if depth > _MAX_NESTING:
            raise _wrong(path, f"nests more than {_MAX_NESTING} levels")
        kind = tag.get("type")
        members = _MEMBERS.get(kind) if isinstance(kind, str) else None
        if members is None:
            raise _wrong(f"{path}.type", f"must be one of {', '.join(_MEMBERS)}")
        found: dict[str, Any] = {"type": kind}
        for name in tag:
            if name not in members and name != "type":
                raise _wrong(f"{path}.{name}", f"is no part of the format {kind} here")
        for name, member in members.items():
            if name in tag:
                found[name] = member.read(self, tag[name], f"{path}.{name}", depth + 1)
            elif member.is_required:
                raise _wrong(f"{path}.{name}", "is required")
        match kind:
            case "json_schema":
                shape: Shape = found["json_schema"]
                return shape
            case "regex":
                return regex_shape(found["pattern"], param=f"{path}.pattern")
        return found

    def old_shape(self, tag: Mapping[str, Any], path: str) -> Shape:
        """The older form: free text in which `triggers` begin `structures`."""
        if not isinstance(tag.get("structures"), list) or "triggers" not in tag:
            raise _wrong(path, "needs `format`, or `structures` and `triggers`")
        tags = []
        for at, structure in enumerate(tag["structures"]):
            here = f"{path}.structures[{at}]"
            if not isinstance(structure, dict) or not structure.keys() >= {"begin", "end"}:
                raise _wrong(here, "must be an object with begin, schema and end")
            schema = json_tag(
                structure.get("schema", True), param=f"{here}.schema", is_strict=self.is_strict
            )
            begin = _text(self, structure["begin"], f"{here}.begin", 0)
            end = _text(self, structure["end"], f"{here}.end", 0)
            tags.append({"type": "tag", "begin": begin, "content": schema, "end": end})
        triggers = _texts(self, tag["triggers"], f"{path}.triggers", 0)
        return {"type": "triggered_tags", "triggers": triggers, "tags": tags}


_Read = Callable[[_Reader, Any, str, int], Any]


@dataclass(frozen=True, slots=True)
class _Member:
    read: _Read
    is_required: bool = True


def _text(_: _Reader, value: Any, path: str, depth: int) -> str:
    if not isinstance(value, str):
        raise _wrong(path, "must be a string")
    return value


def _flag(_: _Reader, value: Any, path: str, depth: int) -> bool:
    if not isinstance(value, bool):
        raise _wrong(path, "must be true or false")
    return value


def _texts(reader: _Reader, value: Any, path: str, depth: int) -> list[str]:
    if not isinstance(value, list) or not value:
        raise _wrong(path, "must be an array that is not empty")
    return [_text(reader, each, f"{path}[{at}]", depth) for at, each in enumerate(value)]


def _text_or_texts(reader: _Reader, value: Any, path: str, depth: int) -> str | list[str]:
    return value if isinstance(value, str) else _texts(reader, value, path, depth)


def _shape(reader: _Reader, value: Any, path: str, depth: int) -> Shape:
    return reader.shape(value, path, depth)


def _shapes(reader: _Reader, value: Any, path: str, depth: int) -> list[Shape]:
    if not isinstance(value, list) or not value:
        raise _wrong(path, "must be an array that is not empty")
    return [reader.shape(each, f"{path}[{at}]", depth) for at, each in enumerate(value)]


def _tags(reader: _Reader, value: Any, path: str, depth: int) -> list[Shape]:
    """Inside a list of tags their type goes without saying."""
    typed = value
    if isinstance(value, list):
        typed = [{"type": "tag", **each} if isinstance(each, dict) else each for each in value]
    shapes = _shapes(reader, typed, path, depth)
    for at, shape in enumerate(shapes):
        if shape["type"] != "tag":
            raise _wrong(f"{path}[{at}].type", "must be tag")
    return shapes


def _schema(reader: _Reader, value: Any, path: str, depth: int) -> Shape:
    return json_tag(value, param=path, is_strict=reader.is_strict)


def _xml_schema(_: _Reader, value: Any, path: str, depth: int) -> Any:
    """Arguments between tags, which only the engine can translate."""
    if not isinstance(value, dict):
        raise _wrong(path, "must be an object")
    return value


_OPTIONAL_FLAG: Final = _Member(_flag, is_required=False)
_MEMBERS: Final[Mapping[str, Mapping[str, _Member]]] = {
    "const_string": {"value": _Member(_text)},
    "json_schema": {"json_schema": _Member(_schema)},
    "grammar": {"grammar": _Member(_text)},
    "regex": {"pattern": _Member(_text)},
    "any_text": {"excludes": _Member(_texts, is_required=False)},
    "sequence": {"elements": _Member(_shapes)},
    "or": {"elements": _Member(_shapes)},
    "tag": {"begin": _Member(_text), "content": _Member(_shape), "end": _Member(_text_or_texts)},
    "triggered_tags": {
        "triggers": _Member(_texts),
        "tags": _Member(_tags),
        "excludes": _Member(_texts, is_required=False),
        "at_least_one": _OPTIONAL_FLAG,
        "stop_after_first": _OPTIONAL_FLAG,
    },
    "tags_with_separator": {
        "tags": _Member(_tags),
        "separator": _Member(_text),
        "at_least_one": _OPTIONAL_FLAG,
        "stop_after_first": _OPTIONAL_FLAG,
    },
    "qwen_xml_parameter": {"json_schema": _Member(_xml_schema)},
}


def _wrong(path: str, reason: str) -> InvalidGrammar:
    return InvalidGrammar(f"`{path}` {reason}.", param=path)
