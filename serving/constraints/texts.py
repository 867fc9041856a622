"""Texts that fit a grammar of the client's, spelled as a family writes texts: the inputs of
custom tools."""

from __future__ import annotations

from functools import lru_cache
from typing import Final, assert_never

from serving.constraints.family import Shape
from serving.constraints.schema.ebnf import Text, seq, text_of
from serving.constraints.schema.json_rules import basics
from serving.constraints.schema.lark import BadLark, lark_rules
from serving.constraints.schema.pattern import BadPattern, IrregularPattern, fully
from serving.constraints.schema.regular import Spelling
from serving.constraints.schema.terminals import Terminals
from serving.core.errors import InvalidGrammar
from serving.core.request import TextGrammar, TextSyntax

_NAMES: Final = {TextSyntax.REGEX: "a regular expression", TextSyntax.LARK: "a Lark grammar"}


def text_tag(
    grammar: TextGrammar,
    spell: Spelling,
    *,
    before: str = "",
    after: str = "",
    unwanted: tuple[str, ...] = (),
) -> Shape:
    """A text of the grammar between two others. `unwanted`: what the family would read as its
    end. Raises `InvalidGrammar`."""
    try:
        text = _grammar(grammar.syntax, grammar.definition, spell, before, after, unwanted)
    except (BadLark, BadPattern, IrregularPattern) as error:
        raise InvalidGrammar(
            f"`{grammar.param}` cannot be compiled as {_NAMES[grammar.syntax]}: {error}.",
            param=grammar.param,
        ) from None
    return {"type": "grammar", "grammar": text}


@lru_cache(maxsize=64)
def _grammar(
    syntax: TextSyntax,
    definition: str,
    spell: Spelling,
    before: str,
    after: str,
    unwanted: tuple[str, ...],
) -> str:
    """Clients send the same again and again."""
    terminals = Terminals(spell, unwanted)
    match syntax:
        case TextSyntax.REGEX:
            inner = terminals.of(fully(definition))
        case TextSyntax.LARK:
            inner = lark_rules(definition, terminals)
        case _:
            assert_never(syntax)
    root = seq(Text(before), inner, Text(after))
    text = text_of({**dict(basics("")), **terminals.rules, "root": root}, "root")
    if text is None:
        raise IrregularPattern("nothing fits it")
    return text
