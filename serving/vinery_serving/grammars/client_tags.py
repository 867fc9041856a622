"""XGrammar's structural tags, as clients write them.

XGrammar ignores unknown members, and translates schemas and patterns in its own way. So unknown
members are refused with their path, and schemas and patterns become grammars of this package.

Three forms are accepted: `{"type": "structural_tag", "format": {...}}`, the older form with
`structures` and `triggers`, and a bare format, as OpenVINO Model Server accepts it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Self

from vinery_serving.core.errors import InvalidGrammar
from vinery_serving.grammars.grammar.ebnf import StructuralTag
from vinery_serving.grammars.json_schema.translator import json_tag
from vinery_serving.grammars.texts import regex_tag

_MAX_NESTING: Final = 30  # readers recurse, and people do not nest tags deeper
_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "a string": (str,),
    "true or false": (bool,),
    "an object": (dict,),
    "an array that is not empty": (list,),
    "a string or an array that is not empty": (str, list),
    "a schema": (dict, bool),
}
_TEXT, _FLAG, _OBJECT, _LIST, _TEXTS, _SCHEMA = _TYPES
_FLAGS: Final = {"at_least_one": _FLAG, "stop_after_first": _FLAG}
# The members of each kind of format, and what they must be.
_MEMBERS: Final[Mapping[str, Mapping[str, str]]] = {
    "const_string": {"value": _TEXT},
    "json_schema": {"json_schema": _SCHEMA},
    "grammar": {"grammar": _TEXT},
    "regex": {"pattern": _TEXT},
    "any_text": {"excludes": _LIST},
    "sequence": {"elements": _LIST},
    "or": {"elements": _LIST},
    "tag": {"begin": _TEXT, "content": _OBJECT, "end": _TEXTS},
    "triggered_tags": {"triggers": _LIST, "tags": _LIST, "excludes": _LIST, **_FLAGS},
    "tags_with_separator": {"tags": _LIST, "separator": _TEXT, **_FLAGS},
    # Arguments between tags, which only XGrammar can translate.
    "qwen_xml_parameter": {"json_schema": _OBJECT},
}
_OPTIONAL: Final = frozenset(("excludes", *_FLAGS))
_OF_TEXTS: Final = frozenset(("excludes", "triggers", "end"))  # lists of strings


@dataclass(frozen=True, slots=True)
class _Path:
    """Where a value is in the request, and whether schemas in it are strict."""

    text: str
    is_strict: bool
    depth: int = 0

    def at(self, step: str) -> Self:
        return replace(self, text=f"{self.text}{step}", depth=self.depth + step.startswith("."))

    def error(self, reason: str) -> InvalidGrammar:
        return InvalidGrammar(f"`{self.text}` {reason}.", param=self.text)


def client_tag(tag: Any, *, param: str, is_strict: bool) -> StructuralTag:
    """Return the format of a structural tag from the field `param`. Raises `InvalidGrammar` with
    the path of the fault, and `UnsupportedParameter` as `json_tag` does."""
    at = _Path(param, is_strict=is_strict)
    _check(tag, _OBJECT, at)
    if tag.get("type", "structural_tag") != "structural_tag":
        return _format(tag, at)
    if "format" in tag:
        return _format(tag["format"], replace(at, text=f"{param}.format"))
    if not isinstance(tag.get("structures"), list) or "triggers" not in tag:
        raise at.error("needs `format`, or `structures` and `triggers`")
    # The older form: free text in which `triggers` begin `structures`.
    tags = []
    for index, each in enumerate(tag["structures"]):
        if not isinstance(each, dict) or not each.keys() >= {"begin", "end"}:
            where = at.at(f".structures[{index}]")
            raise where.error("must be an object with begin, schema and end")
        content = {"type": "json_schema", "json_schema": each.get("schema", True)}
        tags.append({"begin": each["begin"], "content": content, "end": each["end"]})
    return _format({"type": "triggered_tags", "triggers": tag["triggers"], "tags": tags}, at)


def _check(value: Any, form: str, at: _Path) -> None:
    if not isinstance(value, _TYPES[form]) or value == []:
        raise at.error(f"must be {form}")


def _format(tag: Any, at: _Path) -> StructuralTag:
    _check(tag, _OBJECT, at)
    if at.depth > _MAX_NESTING:
        raise at.error(f"nests more than {_MAX_NESTING} levels")
    kind = tag.get("type")
    members = _MEMBERS.get(kind) if isinstance(kind, str) else None
    if members is None:
        raise at.at(".type").error(f"must be one of {', '.join(_MEMBERS)}")
    for name in tag:
        if name not in members and name != "type":
            raise at.at(f".{name}").error(f"is not a member of the format {kind} here")
    for name, form in members.items():
        if name in tag:
            _check(tag[name], form, at.at(f".{name}"))
        elif name not in _OPTIONAL:
            raise at.at(f".{name}").error("is required")
    if kind == "json_schema":
        where = f"{at.text}.json_schema"
        return json_tag(tag["json_schema"], param=where, is_strict=at.is_strict)
    if kind == "regex":
        return regex_tag(tag["pattern"], param=f"{at.text}.pattern")
    return {name: _member(name, value, at.at(f".{name}")) for name, value in tag.items()}


def _member(name: str, value: Any, at: _Path) -> Any:
    if isinstance(value, list):
        return [_item(name, each, at.at(f"[{index}]")) for index, each in enumerate(value)]
    return _format(value, at) if name == "content" else value


def _item(name: str, value: Any, at: _Path) -> Any:
    if name in _OF_TEXTS:
        _check(value, _TEXT, at)
        return value
    if name == "tags" and isinstance(value, dict):
        value = {"type": "tag", **value}
        if value["type"] != "tag":
            raise at.at(".type").error("must be tag")
    return _format(value, at)
