"""Lark grammars as grammar rules: the texts that fit the rule `start`.

Lark only parses the grammar. A text fits if it can be split into terminals in any way, as with
Lark's Earley parser and the lexer `dynamic_complete`. So priorities, aliases and rule modifiers,
which choose among parses and format trees, have no effect. Terminals may match the empty text. Only
the module `common` can be imported.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

from vinery_serving.core.field_limits import LARK
from vinery_serving.grammars.grammar.ebnf import EMPTY, Expr, Ref, Repeat, alt, seq
from vinery_serving.grammars.grammar.languages import ANY_CHARS, Chars, Language, NotRegular, cat
from vinery_serving.grammars.grammar.patterns import (
    SHORT_QUANTIFIERS,
    InvalidPattern,
    caseless,
    fullmatch_language,
)
from vinery_serving.grammars.grammar.rules import RuleSet

if TYPE_CHECKING:
    from lark import Token, Tree

_MAX_TIMES: Final = 1000
_COMMON: Final = "common"
# Lark's own definition uses a lookbehind, which is not regular.
_COMMON_REPLACEMENTS: Final = r'ESCAPED_STRING: "\"" /([^"\\\n]|\\[^\n])*/ "\""' + "\n"
_ESCAPE: Final = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))")
_CONTROLS: Final = {"n": "\n", "t": "\t", "r": "\r", "f": "\f"}

# A module ("" is the client's own grammar), and the name of a rule or terminal in it.
_Name = tuple[str, str]


class InvalidLark(Exception):
    """A text that is not a Lark grammar, or has unsupported parts. The message is the reason."""


def lark_expression(definition: str, rules: RuleSet) -> Expr:
    """Return an expression of all texts that fit, and add its rules to `rules`. Raises
    `InvalidLark` with the necessary change, or `NotRegular` for a terminal that is too large."""
    if len(definition) > LARK.value:
        raise InvalidLark(f"it is longer than {LARK.value} characters")
    try:
        return _Reader(_Module(definition), rules).start()
    except RecursionError:
        raise InvalidLark("it nests too deeply") from None


class _Module:
    def __init__(self, definition: str) -> None:
        """Raises `InvalidLark`."""
        self.definitions: dict[str, Tree[Token]] = {}
        self.ignored: list[Tree[Token]] = []
        self.imports: dict[str, str] = {}
        for statement in _trees(_parsed(definition)):
            self._add(statement)

    def _add(self, statement: Tree[Token]) -> None:
        match statement.data:
            case "rule" | "token":
                self._define(statement)
            case "ignore":
                self.ignored.append(_trees(statement)[0])
            case "import":
                path, alias = statement.children
                *module, name = _path(path)
                self._import(module, name, name if alias is None else _text(alias))
            case "multi_import":
                path, names = _trees(statement)
                for each in _trees(names):
                    self._import(_path(path), _text(each), _text(each))
            case other:
                raise InvalidLark(f"%{other.removesuffix('_rule')} is not supported")

    def _define(self, statement: Tree[Token]) -> None:
        name = _text(statement).lstrip("?!")
        parameters, *_, body = _trees(statement)
        if any(each is not None for each in parameters.children):
            raise InvalidLark(f"{name} is a template, which is not supported")
        self._claim(name)
        self.definitions[name] = body

    def _import(self, module: Sequence[str], name: str, alias: str) -> None:
        if list(module) != [_COMMON]:
            raise InvalidLark(f"%import {'.'.join([*module, name])}: only `common` can be imported")
        if name not in _common().definitions:
            raise InvalidLark(f"%import {_COMMON}.{name}: there is no such terminal")
        self._claim(alias)
        self.imports[alias] = name

    def _claim(self, name: str) -> None:
        if name in self.definitions or name in self.imports:
            raise InvalidLark(f"{name} is defined twice")


class _Reader:
    """Turns syntax trees into expressions. Only names in use become rules."""

    def __init__(self, module: _Module, rules: RuleSet) -> None:
        self._module = module
        self._rules = rules
        self._names: dict[_Name, str] = {}
        self._queue: deque[_Name] = deque()
        # The ignored terminals, which may occur before the first terminal and after each terminal.
        self._gap: Expr = EMPTY

    def start(self) -> Expr:
        if self._module.ignored:
            ignored = alt(self._of(each, "", is_lexical=True) for each in self._module.ignored)
            self._gap = self._rules.named(Repeat(ignored, 0, None))
        root = seq(self._gap, self._ref(("", "start")))
        while self._queue:
            module, name = key = self._queue.popleft()
            tree = self._definitions(module)[name]
            rule = self._of(tree, module, is_lexical=_is_terminal(name))
            self._rules.rules[self._names[key]] = rule
        return root

    def _definitions(self, module: str) -> Mapping[str, Tree[Token]]:
        return _common().definitions if module else self._module.definitions

    def _ref(self, key: _Name) -> Expr:
        module, name = key
        if not module and name in self._module.imports:
            key = _COMMON, self._module.imports[name]
        elif name not in self._definitions(module):
            raise InvalidLark(f"there is no rule or terminal named {name}")
        if key not in self._names:
            self._names[key] = self._rules.new_name()
            self._queue.append(key)
        return Ref(self._names[key])

    def _of(self, tree: Tree[Token], module: str, *, is_lexical: bool) -> Expr:
        """`is_lexical`: the tree is part of a terminal, in which nothing is ignored."""

        def of(each: Any) -> Expr:
            return self._of(each, module, is_lexical=is_lexical)

        match tree.data:
            case "expansions":
                return alt(of(each) for each in tree.children)
            case "alias":
                return of(tree.children[0])
            case "expansion":
                return seq(*(of(each) for each in tree.children))
            case "expr":
                return _repeated(of(tree.children[0]), tree.children[1:])
            case "maybe":
                return Repeat(of(tree.children[0]), 0, 1)
            case "name":
                return self._named(_text(tree), module, is_lexical=is_lexical)
            case "literal" | "literal_range":
                expr = self._rules.terminal(_language(tree))
                return expr if is_lexical else seq(expr, self._gap)
            case "template_usage":
                raise InvalidLark(
                    f"{_text(tree.children[0])} is a template, which is not supported"
                )
            case other:
                raise AssertionError(f"Lark's syntax has no {other}")

    def _named(self, name: str, module: str, *, is_lexical: bool) -> Expr:
        if is_lexical and not _is_terminal(name):
            raise InvalidLark(f"a terminal cannot use the rule {name}")
        expr = self._ref((module, name))
        return expr if is_lexical or not _is_terminal(name) else seq(expr, self._gap)


def _repeated(part: Expr, times: Sequence[Any]) -> Expr:
    written = [str(each) for each in times if each is not None]
    if not written:
        return part
    if written[0] in SHORT_QUANTIFIERS:
        return Repeat(part, *SHORT_QUANTIFIERS[written[0]])
    least, most = int(written[0]), int(written[-1])
    if not 0 <= least <= most <= _MAX_TIMES:
        raise InvalidLark(f"~{least}..{most} must be in order, and at most {_MAX_TIMES}")
    return Repeat(part, least, most) if most else EMPTY


def _language(tree: Tree[Token]) -> Language:
    written = [str(each) for each in tree.children]
    if tree.data == "literal_range":
        first, last = (_literal(each.removesuffix("i")[1:-1]) for each in written)
        if len(first) != 1 or len(last) != 1 or last < first:
            raise InvalidLark(f"{'..'.join(written)} is not a range of characters")
        return Chars(((ord(first), ord(last)),))
    [source] = written
    if source.startswith("/"):
        return _regular(source)
    text = _literal(source.removesuffix("i")[1:-1])
    sets = [((ord(each), ord(each)),) for each in text]
    return cat(*(Chars(caseless(each) if source.endswith("i") else each) for each in sets))


def _regular(source: str) -> Language:
    body, _, flags = source[1:].rpartition("/")
    if unknown := set(flags) - set("isu"):
        raise InvalidLark(f"{source} has the flag {min(unknown)}, which is not supported")
    try:
        return fullmatch_language(
            body, is_caseless="i" in flags, dot=ANY_CHARS if "s" in flags else None
        )
    except (InvalidPattern, NotRegular) as error:
        raise InvalidLark(f"{source} cannot be used: {error}") from None


def _literal(inside: str) -> str:

    def meaning(escape: re.Match[str]) -> str:
        code = escape[1] or escape[2] or escape[3]
        if code and int(code, 16) > 0x10FFFF:
            raise InvalidLark(f"{escape[0]} is not a character")
        if code:
            return chr(int(code, 16))
        character: str = escape[4]
        return _CONTROLS.get(character, character if character in '"\\' else escape[0])

    return _ESCAPE.sub(meaning, inside)


def _is_terminal(name: str) -> bool:
    return name.lstrip("_")[:1].isupper()


@cache
def _syntax() -> Any:
    """Lark's parser of grammars. It is loaded for the first grammar, because Lark is large."""
    from lark import Lark

    return Lark.open_from_package("lark", "lark.lark", ["grammars"], parser="lalr")


@cache
def _common() -> _Module:
    module = _Module(files("lark").joinpath("grammars", "common.lark").read_text("utf-8"))
    module.definitions |= _Module(_COMMON_REPLACEMENTS).definitions
    return module


def _parsed(definition: str) -> Tree[Token]:
    from lark.exceptions import UnexpectedInput

    try:
        tree: Tree[Token] = _syntax().parse(definition.rstrip() + "\n")
    except UnexpectedInput as error:
        where = "its end" if error.line < 1 else f"line {error.line}, column {error.column}"
        raise InvalidLark(f"it has a syntax error at {where}") from None
    return tree


def _trees(tree: Tree[Token]) -> list[Tree[Token]]:
    return [each for each in tree.children if each is not None and not isinstance(each, str)]


def _path(tree: Any) -> list[str]:
    """The names between the dots. A relative path has an empty name first."""
    parts = [str(each) if isinstance(each, str) else _text(each) for each in tree.children]
    names = [part for part in parts if part != "."]
    return ["", *names] if parts[0] == "." else names


def _text(tree: Any) -> str:
    return str(tree.children[0])
