"""Grammars of texts: of those that a client describes with a regular expression or a Lark grammar,
and of structural tags. XGrammar accepts a choice between tags only if all or none of them have an
end, so tags become plain grammars beside others."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, assert_never

from vinery_serving.core.errors import GrammarTooLarge, InvalidGrammar, cited
from vinery_serving.core.request import TextGrammar, TextSyntax
from vinery_serving.grammars.grammar.ebnf import (
    Expr,
    StructuralTag,
    Text,
    grammar_tag,
    prefixed,
    quoted,
    seq,
)
from vinery_serving.grammars.grammar.languages import NotRegular, complement, containing
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


def lowered(tag: StructuralTag) -> StructuralTag | None:
    """Return a tag of one grammar for the same texts. None for free text with triggers or with
    long ends, and for a format that only XGrammar can translate. Raises `InvalidGrammar` for a
    tool's pattern."""
    if tag["type"] == "grammar":
        return tag
    lowering = _Lowering()
    root = lowering.of(tag, ())
    return None if root is None else grammar_tag(f"root ::= {root}\n{''.join(lowering.grammars)}")


class _Lowering:
    """Collects the grammars of the parts, and gives each its own rule names."""

    def __init__(self) -> None:
        self.grammars: list[str] = []
        self._num_lists = 0

    def of(self, tag: StructuralTag, ends: Sequence[str]) -> str | None:
        """Return an expression. `ends` follow the tag: free text contains no end."""
        match tag["type"]:
            case "const_string":
                return quoted(tag["value"])
            case "grammar":
                return self._grammar(tag["grammar"])
            case "regex":
                return self._grammar(regex_tag(tag["pattern"], param="tools")["grammar"])
            case "any_text":
                return self._free_text([*ends, *tag.get("excludes", ())])
            case "sequence":
                *first, last = tag["elements"]
                return _joined([*(self.of(each, ()) for each in first), self.of(last, ends)], " ")
            case "or":
                return _joined([self.of(each, ends) for each in tag["elements"]], " | ")
            case "tag":
                return self._tag(tag)
            case "tags_with_separator":
                return self._separated(tag)
            case _:
                return None

    def _grammar(self, text: str) -> str:
        prefix = f"g{len(self.grammars)}_"
        self.grammars.append(prefixed(text, prefix).rstrip() + "\n")
        return f"{prefix}root"

    def _free_text(self, ends: Sequence[str]) -> str | None:
        text = _text_without(tuple(filter(None, ends)))
        return None if text is None else self._grammar(text)

    def _tag(self, tag: Mapping[str, Any]) -> str | None:
        ends = [tag["end"]] if isinstance(tag["end"], str) else tag["end"]
        content = self.of(tag["content"], ends)
        closing = _joined([quoted(end) for end in ends], " | ")
        return _joined([quoted(tag["begin"]), content, closing], " ")

    def _separated(self, tags: Mapping[str, Any]) -> str | None:
        self._num_lists += 1
        is_inner, name = self._num_lists > 1, f"list{self._num_lists}"
        one = _joined([self._tag(tag) for tag in tags["tags"]], " | ")
        if one is None:
            return None
        if is_inner:
            # The text of a tag comes twice: lists in lists would double with each level.
            self.grammars.append(f"{name} ::= {one}\n")
            one = name
        more = "" if tags.get("stop_after_first") else f" ({quoted(tags['separator'])} {one})*"
        return f"({one}{more})" if tags.get("at_least_one") else f"({one}{more})?"


@lru_cache(maxsize=64)
def _text_without(ends: tuple[str, ...]) -> str | None:
    rules = RuleSet(plain)
    try:
        return rules.text(rules.of(complement(containing(ends))))
    except NotRegular:
        return None


def _joined(parts: Sequence[str | None], between: str) -> str | None:
    known = [part for part in parts if part is not None]
    return f"({between.join(known)})" if len(known) == len(parts) else None
