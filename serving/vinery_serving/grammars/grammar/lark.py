"""Lark grammars as grammar rules: the texts that fit the rule `start`.

Lark reads the grammar. A text fits if it can be split into terminals in any way, as with Lark's
Earley parser and the lexer `dynamic_complete`. So priorities, aliases and rule modifiers, which
choose among parses and format trees, have no effect. Terminals may match the empty text. Only the
module `common` can be imported.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
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
    from lark.load_grammar import Grammar

_MAX_TIMES: Final = 1000
_COMMON: Final = "common.lark"
# Lark's own definition uses a lookbehind, which is not regular.
_STRING: Final = r'ESCAPED_STRING: "\"" /([^"\\\n]|\\[^\n])*/ "\""'


class InvalidLark(Exception):
    """A text that is not a Lark grammar, or has unsupported parts. The message is the reason."""


def lark_expression(definition: str, rules: RuleSet) -> Expr:
    """Return an expression of all texts that fit, and add its rules to `rules`. Raises
    `InvalidLark` with the necessary change, or `NotRegular` for a terminal that is too large."""
    # Lark is large, so it is loaded for the first grammar.
    from lark.exceptions import LarkError, UnexpectedInput
    from lark.load_grammar import GrammarBuilder

    if len(definition) > LARK.value:
        raise InvalidLark(f"it is longer than {LARK.value} characters")
    builder = GrammarBuilder(import_paths=[_imported])
    try:
        builder.load_grammar(definition.rstrip())
        return _Reader(builder.build(), rules).start()
    except RecursionError:
        raise InvalidLark("it nests too deeply") from None
    except UnexpectedInput as error:
        where = "its end" if error.line < 1 else f"line {error.line}, column {error.column}"
        raise InvalidLark(f"it has a syntax error at {where}") from None
    # Lark asserts some rules about definitions, and a number may have too many digits.
    except (LarkError, AssertionError, ValueError) as error:
        reason = str(error).partition("\n")[0].removesuffix(": ")
        raise InvalidLark(reason or "it uses a terminal without a definition") from None


def _imported(base_path: object, name: str) -> tuple[str, str]:
    """Lark asks for each module here first, and would open files of this machine then."""
    if base_path is not None or name != _COMMON:
        raise InvalidLark(f"%import of {name.removesuffix('.lark')}: only `common` can be imported")
    lines = files("lark").joinpath("grammars", name).read_text("utf-8").splitlines()
    own = (_STRING if line.startswith("ESCAPED_STRING") else line for line in lines)
    return name, "\n".join(own)


class _Reader:
    """Turns syntax trees into expressions. Only definitions in use become rules."""

    def __init__(self, grammar: Grammar, rules: RuleSet) -> None:
        self._terminals = {name: tree for name, (tree, _) in grammar.term_defs}
        self._plain = {name: tree for name, params, tree, _ in grammar.rule_defs if not params}
        self._ignored = grammar.ignore
        self._rules = rules
        self._names: dict[int, str] = {}  # of the rules, by the ids of their trees
        self._queue: deque[tuple[str, Tree[Token], bool]] = deque()
        # The ignored terminals, which may occur before the first terminal and after each terminal.
        self._gap: Expr = EMPTY

    def start(self) -> Expr:
        if self._ignored:
            ignored = alt(self._named(name, is_lexical=True) for name in self._ignored)
            self._gap = self._rules.named(Repeat(ignored, 0, None))
        root = seq(self._gap, self._named("start", is_lexical=False))
        while self._queue:
            name, tree, is_lexical = self._queue.popleft()
            self._rules.rules[name] = self._of(tree, is_lexical=is_lexical)
        return root

    def _named(self, name: str, *, is_lexical: bool) -> Expr:
        is_terminal = name in self._terminals
        tree = self._terminals[name] if is_terminal else self._plain.get(name)
        if tree is None:
            raise InvalidLark(f"there is no rule or terminal named {name}")
        expr = self._ref(tree, is_lexical=is_terminal)
        return expr if is_lexical or not is_terminal else seq(expr, self._gap)

    def _ref(self, tree: Tree[Token], *, is_lexical: bool) -> Expr:
        if id(tree) not in self._names:
            name = self._names[id(tree)] = self._rules.new_name()
            self._queue.append((name, tree, is_lexical))
        return Ref(self._names[id(tree)])

    def _of(self, tree: Tree[Any], *, is_lexical: bool) -> Expr:
        """`is_lexical`: the tree is part of a terminal, in which nothing is ignored."""
        parts: list[Any] = tree.children
        match tree.data:
            case "expansions":
                return alt(self._of(each, is_lexical=is_lexical) for each in parts)
            case "alias":
                return self._of(parts[0], is_lexical=is_lexical)
            case "expansion":
                return seq(*(self._of(each, is_lexical=is_lexical) for each in parts))
            case "expr":
                return _repeated(self._of(parts[0], is_lexical=is_lexical), parts[1:])
            case "maybe":
                return Repeat(self._of(parts[0], is_lexical=is_lexical), 0, 1)
            case "value":
                return self._value(parts[0], is_lexical=is_lexical)
            case "template_usage":
                raise InvalidLark(f"{parts[0].name} is a template, which is not supported")
            case other:
                raise AssertionError(f"Lark's syntax has no {other}")

    def _value(self, value: Any, *, is_lexical: bool) -> Expr:
        """A name, a literal, or in a terminal the tree of another terminal."""
        match getattr(value, "data", ""):
            case "literal" | "range":
                expr = self._rules.terminal(_language(value))
                return expr if is_lexical else seq(expr, self._gap)
            case "":
                return self._named(value.name, is_lexical=is_lexical)
            case "expansions":
                return self._ref(value, is_lexical=is_lexical)
            case _:
                return self._of(value, is_lexical=is_lexical)


def _repeated(part: Expr, times: Sequence[Any]) -> Expr:
    written = [str(each) for each in times if each != "~"]
    if written[0] in SHORT_QUANTIFIERS:
        return Repeat(part, *SHORT_QUANTIFIERS[written[0]])
    least, most = int(written[0]), int(written[-1])
    if not 0 <= least <= most <= _MAX_TIMES:
        raise InvalidLark(f"~{least}..{most} must be in order, and at most {_MAX_TIMES}")
    return Repeat(part, least, most) if most else EMPTY


def _language(literal: Tree[Token]) -> Language:
    from lark.exceptions import LarkError
    from lark.load_grammar import PrepareLiterals

    source = "..".join(map(str, literal.children))
    try:
        [pattern] = PrepareLiterals().transform(literal).children
    except LarkError:
        raise InvalidLark(f"{source} is not a text or a range of characters") from None
    is_caseless = "i" in pattern.flags
    if pattern.type == "str":
        sets = [((ord(each), ord(each)),) for each in pattern.value]
        return cat(*(Chars(caseless(each) if is_caseless else each) for each in sets))
    if unknown := set(pattern.flags) - set("isu"):
        raise InvalidLark(f"{source} has the flag {min(unknown)}, which is not supported")
    dot = ANY_CHARS if "s" in pattern.flags else None
    try:
        return fullmatch_language(pattern.value, is_caseless=is_caseless, dot=dot)
    except (InvalidPattern, NotRegular) as error:
        raise InvalidLark(f"{source} cannot be used: {error}") from None
