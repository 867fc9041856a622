"""Grammars of texts that a client describes with a regular expression or a Lark grammar."""

from functools import lru_cache
from typing import Final, assert_never

from serving.constraints.grammar.ebnf import StructuralTag, Text, grammar_tag, seq
from serving.constraints.grammar.languages import NotRegular
from serving.constraints.grammar.lark import InvalidLark, lark_expression
from serving.constraints.grammar.patterns import InvalidPattern, fullmatch_language
from serving.constraints.grammar.rules import RuleSet, Spelling, plain
from serving.core.errors import InvalidGrammar
from serving.core.request import TextGrammar, TextSyntax

_NAMES: Final = {TextSyntax.REGEX: "a regular expression", TextSyntax.LARK: "a Lark grammar"}


def regex_tag(pattern: str, *, param: str) -> StructuralTag:
    """Return a tag of the texts that a pattern matches from start to end. Raises
    `InvalidGrammar` with `param` and the reason."""
    return text_tag(TextGrammar(TextSyntax.REGEX, pattern, param), plain)


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
        text = _text(grammar.syntax, grammar.definition, spell, before, after, excluded)
    except (InvalidLark, InvalidPattern, NotRegular) as error:
        raise InvalidGrammar(
            f"`{grammar.param}` cannot be compiled as {_NAMES[grammar.syntax]}: {error}.",
            param=grammar.param,
        ) from None
    return grammar_tag(text)


# Clients send the same grammar with every request.
@lru_cache(maxsize=64)
def _text(
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
            inner = rules.of(fullmatch_language(definition))
        case TextSyntax.LARK:
            inner = lark_expression(definition, rules)
        case _:
            assert_never(syntax)
    text = rules.text(seq(Text(before), inner, Text(after)))
    if text is None:
        raise NotRegular("no text fits it")
    return text
