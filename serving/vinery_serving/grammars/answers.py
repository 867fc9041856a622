"""Grammars for the answers and the tool calls that a request asks for. A grammar is for the answer
alone: reasoning before the answer is free. A model that begins its reasoning itself goes straight
to the demanded text: with the choice, a model whose reasoning is switched off would reason to avoid
the demand.

Clients may write XGrammar's structural tags. XGrammar ignores unknown members, and translates
schemas and patterns in its own way. So unknown members are refused with their path, and schemas and
patterns become grammars of this package. Three forms are accepted:
`{"type": "structural_tag", "format": {...}}`, the older form with `structures` and `triggers`, and
a bare format, as OpenVINO Model Server accepts it.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Self, assert_never

from vinery_serving.core.errors import InvalidGrammar, InvalidRequest, UnsupportedParameter, cited
from vinery_serving.core.request import Grammar, GrammarKind, Tool, ToolChoice, ToolMode
from vinery_serving.grammars.family import GrammarFamily
from vinery_serving.grammars.grammar.ebnf import StructuralTag, Text, alt, grammar_tag, text_of
from vinery_serving.grammars.json_schema.translator import json_tag
from vinery_serving.grammars.texts import lowered, regex_tag

_DEFAULT_PARAM: Final = "response_format"


def answer_grammar(
    family: GrammarFamily,
    grammar: Grammar,
    *,
    opens_reasoning: bool,
    tools: Sequence[Tool] = (),
    parallel: bool = True,
) -> Grammar:
    """Return the grammar of an answer with the family's reasoning and syntax around it, or of calls
    of `tools` instead. Raises `InvalidGrammar` for an invalid source, or `UnsupportedParameter` for
    a source that cannot be enforced, with the path of the cause."""
    tag = family.answer(_answer(grammar))
    if tools and family.supports_calls:
        calls = family.calls(tools, ToolChoice(ToolMode.REQUIRED), parallel=parallel)
        tag = {"type": "or", "elements": [lowered(calls) or calls, lowered(tag) or tag]}
    return _after_reasoning(family, tag, grammar.param, opens_reasoning=opens_reasoning)


def tool_grammar(
    family: GrammarFamily,
    tools: Sequence[Tool],
    choice: ToolChoice,
    *,
    parallel: bool,
    opens_reasoning: bool,
) -> Grammar | None:
    """Return the grammar of the calls that the request demands; None if the model is free. Raises
    `UnsupportedParameter` if calls of the family cannot be forced, `InvalidRequest` for the name of
    a tool that the request does not have."""
    tools = [tool for tool in tools if choice.allows(tool.name)]
    if choice.mode is ToolMode.NAMED and not tools:
        raise InvalidRequest(
            f"There is no tool named {cited(repr(choice.name))} in tools.", param="tool_choice"
        )
    is_forced = choice.mode is not ToolMode.AUTO
    is_narrow = choice.allowed is not None or any(tool.strict for tool in tools) or not parallel
    if not tools or not (is_forced or (family.supports_calls and is_narrow)):
        return None
    if not family.supports_calls:
        raise UnsupportedParameter(
            "This model's output has no known form for tool calls, so a call cannot be forced.",
            param="tool_choice",
        )
    calls = family.calls(tools, choice, parallel=parallel)
    return _after_reasoning(family, calls, "tools", opens_reasoning=opens_reasoning)


def _after_reasoning(
    family: GrammarFamily, tag: StructuralTag, param: str | None, *, opens_reasoning: bool
) -> Grammar:
    if opens_reasoning or family.starts_in_reasoning:
        tag = family.after_reasoning(tag)
    if tag["type"] == "grammar":
        return Grammar(GrammarKind.EBNF, tag["grammar"], param)
    source = json.dumps({"type": "structural_tag", "format": tag}, ensure_ascii=False)
    return Grammar(GrammarKind.STRUCTURAL_TAG, source, param)


def _answer(grammar: Grammar) -> StructuralTag:
    param = grammar.param or _DEFAULT_PARAM
    match grammar.kind:
        case GrammarKind.JSON_SCHEMA:
            return json_tag(
                _json(grammar),
                param=param,
                is_strict=grammar.is_strict,
                is_compact=grammar.is_compact,
            )
        case GrammarKind.REGEX:
            return regex_tag(grammar.source, param=param)
        case GrammarKind.EBNF:
            return grammar_tag(grammar.source)
        case GrammarKind.CHOICE:
            choices = alt(Text(choice) for choice in _json(grammar))
            return grammar_tag(text_of({"root": choices}, "root") or "")
        case GrammarKind.STRUCTURAL_TAG:
            return client_tag(_json(grammar), param=param, is_strict=grammar.is_strict)
        case _:
            assert_never(grammar.kind)


def _json(grammar: Grammar) -> Any:
    try:
        return json.loads(grammar.source)
    except (ValueError, RecursionError) as error:
        raise InvalidGrammar(f"This is not JSON: {error}.", param=grammar.param) from None


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
