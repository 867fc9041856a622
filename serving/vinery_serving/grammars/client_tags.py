"""XGrammar's structural tags, as clients write them.

XGrammar ignores unknown members, and translates schemas and patterns in its own way. So unknown
members are refused with their path, and schemas and patterns become grammars of this package.

Three forms are accepted: `{"type": "structural_tag", "format": {...}}`, the older form with
`structures` and `triggers`, and a bare format, as OpenVINO Model Server accepts it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from vinery_serving.core.errors import InvalidGrammar
from vinery_serving.grammars.grammar.ebnf import StructuralTag
from vinery_serving.grammars.json_schema.translator import json_tag
from vinery_serving.grammars.texts import regex_tag

_MAX_NESTING: Final = 30  # readers recurse, and people do not nest tags deeper


def client_tag(tag: Any, *, param: str, is_strict: bool) -> StructuralTag:
    """Return the format of a structural tag from the field `param`. Raises `InvalidGrammar` with
    the path of the fault, and `UnsupportedParameter` as `json_tag` does."""
    at = _Path(param, is_strict=is_strict)
    if not isinstance(tag, dict):
        raise at.error("must be an object")
    if tag.get("type", "structural_tag") != "structural_tag":
        return _format(tag, at)
    if "format" in tag:
        return _format(tag["format"], replace(at, text=f"{param}.format"))
    return _old_form(tag, at)


@dataclass(frozen=True, slots=True)
class _Path:
    """Where a value is in the request, and whether schemas in it are strict."""

    text: str
    is_strict: bool
    depth: int = 0

    def member(self, name: str) -> _Path:
        return _Path(f"{self.text}.{name}", self.is_strict, self.depth + 1)

    def item(self, index: int) -> _Path:
        return replace(self, text=f"{self.text}[{index}]")

    def error(self, reason: str) -> InvalidGrammar:
        return InvalidGrammar(f"`{self.text}` {reason}.", param=self.text)


def _format(tag: Any, at: _Path) -> StructuralTag:
    if not isinstance(tag, dict):
        raise at.error("must be an object")
    if at.depth > _MAX_NESTING:
        raise at.error(f"nests more than {_MAX_NESTING} levels")
    kind = tag.get("type")
    members = _MEMBERS.get(kind) if isinstance(kind, str) else None
    if members is None:
        raise at.member("type").error(f"must be one of {', '.join(_MEMBERS)}")
    for name in tag:
        if name not in members and name != "type":
            raise at.member(name).error(f"is not a member of the format {kind} here")
    found: dict[str, Any] = {"type": kind}
    for name, read in members.items():
        if name in tag:
            found[name] = read(tag[name], at.member(name))
        elif name not in _OPTIONAL:
            raise at.member(name).error("is required")
    # Schemas and patterns have become grammars.
    replaced: StructuralTag = found.get(_REPLACED.get(str(kind), ""), found)
    return replaced


def _old_form(tag: Mapping[str, Any], at: _Path) -> StructuralTag:
    """The older form: free text in which `triggers` begin `structures`."""
    if not isinstance(tag.get("structures"), list) or "triggers" not in tag:
        raise at.error("needs `format`, or `structures` and `triggers`")
    tags = []
    for index, structure in enumerate(tag["structures"]):
        here = at.member("structures").item(index)
        if not isinstance(structure, dict) or not structure.keys() >= {"begin", "end"}:
            raise here.error("must be an object with begin, schema and end")
        schema = _schema(structure.get("schema", True), here.member("schema"))
        begin = _text(structure["begin"], here.member("begin"))
        end = _text(structure["end"], here.member("end"))
        tags.append({"type": "tag", "begin": begin, "content": schema, "end": end})
    triggers = _texts(tag["triggers"], at.member("triggers"))
    return {"type": "triggered_tags", "triggers": triggers, "tags": tags}


_Read = Callable[[Any, _Path], Any]


def _instance(kind: type, what: str) -> _Read:
    def read(value: Any, at: _Path) -> Any:
        if not isinstance(value, kind):
            raise at.error(f"must be {what}")
        return value

    return read


def _listed(read: _Read) -> _Read:
    def read_all(value: Any, at: _Path) -> list[Any]:
        if not isinstance(value, list) or not value:
            raise at.error("must be an array that is not empty")
        return [read(each, at.item(index)) for index, each in enumerate(value)]

    return read_all


_text: Final = _instance(str, "a string")
_flag: Final = _instance(bool, "true or false")
# Arguments between tags, which only XGrammar can translate.
_xml_schema: Final = _instance(dict, "an object")
_texts: Final = _listed(_text)
_formats: Final = _listed(_format)


def _ends(value: Any, at: _Path) -> Any:
    return value if isinstance(value, str) else _texts(value, at)


def _tags(value: Any, at: _Path) -> Any:
    if isinstance(value, list):
        value = [{"type": "tag", **each} if isinstance(each, dict) else each for each in value]
    tags = _formats(value, at)
    for index, tag in enumerate(tags):
        if tag["type"] != "tag":
            raise at.item(index).member("type").error("must be tag")
    return tags


def _schema(value: Any, at: _Path) -> StructuralTag:
    return json_tag(value, param=at.text, is_strict=at.is_strict)


def _pattern(value: Any, at: _Path) -> StructuralTag:
    return regex_tag(_text(value, at), param=at.text)


_MEMBERS: Final[Mapping[str, Mapping[str, _Read]]] = {
    "const_string": {"value": _text},
    "json_schema": {"json_schema": _schema},
    "grammar": {"grammar": _text},
    "regex": {"pattern": _pattern},
    "any_text": {"excludes": _texts},
    "sequence": {"elements": _formats},
    "or": {"elements": _formats},
    "tag": {"begin": _text, "content": _format, "end": _ends},
    "triggered_tags": {
        "triggers": _texts,
        "tags": _tags,
        "excludes": _texts,
        "at_least_one": _flag,
        "stop_after_first": _flag,
    },
    "tags_with_separator": {
        "tags": _tags,
        "separator": _text,
        "at_least_one": _flag,
        "stop_after_first": _flag,
    },
    "qwen_xml_parameter": {"json_schema": _xml_schema},
}
_OPTIONAL: Final = frozenset(("excludes", "at_least_one", "stop_after_first"))
_REPLACED: Final = {"json_schema": "json_schema", "regex": "pattern"}
