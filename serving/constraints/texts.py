"""Grammars of texts that a client describes with a regular expression or a Lark grammar."""

from __future__ import annotations

from functools import lru_cache
from typing import Final, assert_never

from serving.constraints.ebnf import Expr, StructuralTag, Text, grammar_tag, seq
from serving.constraints.languages import NotRegular
from serving.constraints.lark import InvalidLark, lark_expression
from serving.constraints.patterns import InvalidPattern, fullmatch_language
from serving.constraints.rules import RuleSet, Spelling, plain
from serving.core.errors import InvalidGrammar
from serving.core.request import TextGrammar, TextSyntax

_NAMES: Final = {TextSyntax.REGEX: "a regular expression", TextSyntax.LARK: "a Lark grammar"}


def pattern_grammar(pattern: str) -> str:
    """Return the grammar, in EBNF, of the texts that a pattern matches from start to end.

    Raises `InvalidPattern` or `NotRegular`.
    """
    rules = RuleSet(plain)
    return _text(rules, rules.of(fullmatch_language(pattern)))


def regex_tag(pattern: str, *, param: str) -> StructuralTag:
    """Return a tag of the texts that a pattern matches from start to end. Raises
    `InvalidGrammar` with `param` and the reason."""
    try:
        return grammar_tag(pattern_grammar(pattern))
    except (InvalidPattern, NotRegular) as error:
        raise _cannot_compile(param, TextSyntax.REGEX, error) from None


def text_tag(
    grammar: TextGrammar,
    spell: Spelling,
    *,
    before: str = "",
    after: str = "",
    excluded: tuple[str, ...] = (),
) -> StructuralTag:
    """Return a tag of the texts that fit the grammar, each between `before` and `after`.

    `spell`: how the family of the model writes the text. `excluded`: texts that the family
    would read as the end. Raises `InvalidGrammar` with the grammar's `param` and the reason.
    """
    try:
        text = _grammar(grammar.syntax, grammar.definition, spell, before, after, excluded)
    except (InvalidLark, InvalidPattern, NotRegular) as error:
        raise _cannot_compile(grammar.param, grammar.syntax, error) from None
    return grammar_tag(text)


# Clients send the same grammar with every request.
@lru_cache(maxsize=64)
def _grammar(
    syntax: TextSyntax,
    definition: str,
    spell: Spelling,
    before: str,
    after: str,
    excluded: tuple[str, ...],
) -> str:
    rules = RuleSet(spell, excluded=excluded)
    match syntax:
        case TextSyntax.REGEX:
            inner = rules.terminal(fullmatch_language(definition))
        case TextSyntax.LARK:
            inner = lark_expression(definition, rules)
        case _:
            assert_never(syntax)
    return _text(rules, seq(Text(before), inner, Text(after)))


def _text(rules: RuleSet, root: Expr) -> str:
    text = rules.text(root)
    if text is None:
        raise NotRegular("no text fits it")
    return text


def _cannot_compile(param: str, syntax: TextSyntax, error: Exception) -> InvalidGrammar:
    return InvalidGrammar(
        f"`{param}` cannot be compiled as {_NAMES[syntax]}: {error}.", param=param
    )
