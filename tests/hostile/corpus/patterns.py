"""Regular expressions, Lark and EBNF grammars, and XGrammar tags that are hard to compile."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from tests.hostile.case import CHAT, RESPONSES, Case, num_of, with_fields

Build = Callable[[int], str]

_SIZE: Final = 1 << 16
_TINY: Final = 100


def pattern_cases() -> Iterator[Case]:
    """Each pattern and each grammar, by every name that takes one."""
    for at, (name, (size, build)) in enumerate(_PATTERNS.items()):
        # Each pattern by one of both names: a refused pattern takes a checker's time.
        param, named = list(_PATTERN_NAMES.items())[at % 2]
        yield _case(name, CHAT, param, size, build, named)
    for name, (size, build) in _LARK.items():
        yield _case(name, CHAT, "tools", size, build, lambda text: _custom("lark", text))
    for name, (size, build) in _EBNF.items():
        for param, named in _EBNF_NAMES.items():
            yield _case(name, CHAT, param, size, build, named)
    for name, tag in _TAGS.items():
        yield _case(name, CHAT, "structural_tag", _SIZE, _json(tag), _structural_tag)
    for name, put_choices in _CHOICES.items():
        yield _case("many choices", CHAT, name, _SIZE, _choices, put_choices)
    yield _case("many tools with patterns", RESPONSES, "tools", _SIZE, _json(_tools), json.loads)


def _case(
    name: str, path: str, param: str, size: int, build: Build, put: Callable[[str], dict[str, Any]]
) -> Case:
    def body(size: int) -> bytes:
        return json.dumps(with_fields(path, **put(build(size)))).encode()

    title = f"grammar: {name}, by {param}"
    return Case(title, "grammar", path, body, param, size)


def _custom(syntax: str, definition: str) -> dict[str, Any]:
    form = {"type": "grammar", "grammar": {"syntax": syntax, "definition": definition}}
    tool = {"type": "custom", "custom": {"name": "f", "format": form}}
    return {"tools": [tool], "tool_choice": "required"}


def _structural_tag(text: str) -> dict[str, Any]:
    return {"structural_tag": json.loads(text)}


def _json(build: Callable[[int], Any]) -> Build:
    return lambda size: json.dumps(build(size))


def _fixed(text: str) -> tuple[int, Build]:
    return _TINY, lambda size: text


_PATTERNS: Final[Mapping[str, tuple[int, Build]]] = {
    "counts of counts": _fixed("((a{1,1000}){1,1000}){1,1000}"),
    "look around": _fixed("(?=(a+))\\1(?!b)(?<=c)"),
    "classes": (_SIZE, lambda size: "[a-z0-9\\w\\s]" * num_of(size, 14)),
    "all of unicode": _fixed("[\\u0000-\\U0010ffff]{1,500}[^a]{1,500}\\p{L}*"),
    "not a pattern": _fixed("(((["),
}
_LARK: Final[Mapping[str, tuple[int, Build]]] = {
    "Lark with rules that double": _fixed(
        "start: r0\n" + "".join(f"r{at}: r{at + 1} r{at + 1}\n" for at in range(40)) + 'r40: "a"'
    ),
    "Lark without an end": _fixed("start: a\na: b\nb: a"),
    "Lark with templates": _fixed('_t{x}: x x\nstart: _t{_t{_t{_t{_t{_t{"a"}}}}}}'),
    "Lark with an import": _fixed("%import common.WS\n%import .secrets (A)\nstart: A"),
    "Lark that is too long": (1 << 20, lambda size: "start: /a/ // " + "a" * size),
}
_EBNF: Final[Mapping[str, tuple[int, Build]]] = {
    "EBNF with rules that double": _fixed(
        "root ::= r0\n"
        + "".join(f"r{at} ::= r{at + 1} r{at + 1}\n" for at in range(40))
        + 'r40 ::= "a"'
    ),
    "EBNF with a huge count": _fixed('root ::= "a"{1,1000000000}'),
    "EBNF without a root": _fixed('leaf ::= "a"'),
    "EBNF of many rules": (
        _SIZE,
        lambda size: (
            "root ::= r0\n" + "".join(f'r{at} ::= "{at}"\n' for at in range(num_of(size, 18)))
        ),
    ),
}
_PATTERN_NAMES: Final[Mapping[str, Callable[[str], dict[str, Any]]]] = {
    "guided_regex": lambda text: {"guided_regex": text},
    "tools": lambda text: _custom("regex", text),
}
_EBNF_NAMES: Final[Mapping[str, Callable[[str], dict[str, Any]]]] = {
    "guided_grammar": lambda text: {"guided_grammar": text},
    "structured_outputs": lambda text: {"structured_outputs": {"grammar": text}},
}
_CHOICES: Final[Mapping[str, Callable[[str], dict[str, Any]]]] = {
    "guided_choice": lambda text: {"guided_choice": json.loads(text)},
    "structured_outputs": lambda text: {"structured_outputs": {"choice": json.loads(text)}},
}


def _choices(size: int) -> str:
    return json.dumps([f"choice {number}" for number in range(num_of(size, 16))])


def _sequence(size: int) -> Any:
    parts = [{"type": "const_string", "value": "a"} for _ in range(num_of(size, 44))]
    return {"type": "sequence", "elements": parts}


def _deep_tag(size: int) -> Any:
    tag: Any = {"type": "any_text"}
    for _ in range(30):
        tag = {"type": "or", "elements": [tag, {"type": "sequence", "elements": [tag]}]}
        if len(json.dumps(tag)) > size:
            break
    return tag


def _tools(size: int) -> Any:
    """Custom tools, each with a pattern of its own."""
    tools = [
        {
            "type": "custom",
            "name": f"f{at}",
            "format": {"type": "grammar", "syntax": "regex", "definition": f"(a{{1,{at + 9}}})+"},
        }
        for at in range(num_of(size, 110))
    ]
    return {"tools": tools, "tool_choice": "required"}


_TAGS: Final[Mapping[str, Callable[[int], Any]]] = {
    "a long sequence of tags": _sequence,
    "tags that double": _deep_tag,
    "a tag of no type": lambda size: {"type": "structural_tag", "format": {"type": "?"}},
}
