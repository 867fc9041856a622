"""Grammars of texts that a client describes with a regular expression or a Lark grammar."""

from functools import lru_cache
from typing import Final, assert_never

from vinery_serving.core.errors import GrammarTooLarge, InvalidGrammar, cited
from vinery_serving.core.request import TextGrammar, TextSyntax
from vinery_serving.grammars.grammar.ebnf import Expr, StructuralTag, Text, grammar_tag, seq
from vinery_serving.grammars.grammar.languages import NotRegular
from vinery_serving.grammars.grammar.lark import InvalidLark, lark_expression
from vinery_serving.grammars.grammar.patterns import InvalidPattern, fullmatch_language
from vinery_serving.grammars.grammar.rules import RuleSet, Spelling, plain

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
    """Return a tag of the texts that fit the grammar, each between `before` and `after`. `spell`:
    how the family of the model writes the text. `excluded`: texts that the family would read as the
    end. Raises `InvalidGrammar` with the grammar's `param` and the reason."""
    try:
        return grammar_tag(_known_grammar(grammar, spell, before, after, excluded))
    except (InvalidLark, InvalidPattern, NotRegular) as error:
        reason = cited(error) if isinstance(error, InvalidLark) else error
        kind = GrammarTooLarge if isinstance(error, NotRegular) else InvalidGrammar
        raise kind(
            f"`{grammar.param}` cannot be compiled as {_NAMES[grammar.syntax]}: {reason}.",
            param=grammar.param,
        ) from None


# Clients send the same grammar with every request.
@lru_cache(maxsize=256)
def _known_grammar(
    grammar: TextGrammar, spell: Spelling, before: str, after: str, excluded: tuple[str, ...]
) -> str:
    rules = RuleSet(spell, excluded=excluded)
    text = rules.text(seq(Text(before), _expression(grammar, rules), Text(after)))
    if text is None:
        raise NotRegular("no text fits it")
    return text


def _expression(grammar: TextGrammar, rules: RuleSet) -> Expr:
    match grammar.syntax:
        case TextSyntax.REGEX:
            return rules.of(fullmatch_language(grammar.definition))
        case TextSyntax.LARK:
            return lark_expression(grammar.definition, rules)
        case _:
            assert_never(grammar.syntax)
