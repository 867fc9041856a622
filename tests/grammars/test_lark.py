"""Lark grammars: our rules and Lark's own parser agree."""

from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lark import Lark
from lark.exceptions import LarkError

from tests.examples import examples
from tests.tables import table
from vinery_serving.core.request import TextGrammar, TextSyntax
from vinery_serving.grammars.grammar.ebnf import Expr
from vinery_serving.grammars.grammar.languages import NotRegular
from vinery_serving.grammars.grammar.lark import InvalidLark, lark_expression
from vinery_serving.grammars.grammar.rules import RuleSet, plain
from vinery_serving.grammars.texts import text_tag

from .lark_texts import Rules, fits

GRAMMARS = {
    path.stem: path.read_text() for path in (Path(__file__).parent / "grammars").glob("*.lark")
}
# A text of each grammar.
TEXTS = {
    "lists": '[ab\nc, "say \\"é\\"" ,y,\nSELECT, éé, fromA]',
    "patch": (
        "*** Begin Patch\n*** Update File: a.py\n@@ def f():\n-    return 1\n+    return 2\n"
        "*** Add File: b.py\n+x = 1\n*** End Patch\n"
    ),
    "sql": "SELECT a, COUNT(*), COUNT(b_2) FROM c LIMIT 20;",
    "sums": "1 +-2.5*(3 - 4)#note;* 5",
}


@cache
def parser_of(definition: str) -> Lark:
    return Lark(definition, parser="earley", lexer="dynamic_complete")


@cache
def ours(definition: str) -> tuple[Expr, Rules]:
    """Our root expression of a grammar, and the rules that it uses."""
    rules = RuleSet(plain)
    return lark_expression(definition, rules), rules.rules


def by_lark(definition: str, text: str) -> bool:
    try:
        parser_of(definition).parse(text)
    except LarkError:
        return False
    return True


def by_us(definition: str, text: str) -> bool:
    return fits(*ours(definition), text)


@table("name", GRAMMARS)
@settings(max_examples=examples(10), deadline=None)
@given(data=st.data())
def test_our_rules_and_lark_agree_on_a_text_and_on_changed_texts(name, data):
    text = TEXTS[name]
    at = data.draw(st.integers(0, len(text)))
    letter = data.draw(st.sampled_from(['"', "a", "é", "\n", " ", "*", "(", "9", ""]))
    changed = text[:at] + letter + text[at + 1 :]

    assert by_us(GRAMMARS[name], text)
    assert by_lark(GRAMMARS[name], text)
    assert by_us(GRAMMARS[name], changed) == by_lark(GRAMMARS[name], changed)


@table(
    "definition, text, is_fit",
    [
        # A terminal may be empty, unlike in Lark's own lexers.
        ('start: "+" /(.*)/', "+", True),
        ('start: "a\\n\\x41\\u00e9\\"\\\\\\d"', 'a\nAé"\\\\d', True),
        ("start: /a.b/s", "a\nb", True),
        ("start: /a.b/", "a\nb", False),
        ("start: /[^k]é/i", "KÉ", False),
        ("start: /[^k]é/i", "xÉ", True),
        ('start: "a"~3', "aaa", True),
        ('start: "a"~3', "aa", False),
        ("start: common\ncommon: INT\n%import common.INT", "12", True),
        ("start: N\n%import common.INT -> N", "12", True),
        # Ignored text is allowed between terminals, never inside them.
        ('start: AB "c"\nAB: "a" "b"\n%ignore " "', " ab  c ", True),
        ('start: AB "c"\nAB: "a" "b"\n%ignore " "', "a bc", False),
        ('start: A\nA: B B\nB: "b"\n%override start: A A', "bbbb", True),
    ],
)
def test_definitions_mean_what_they_mean_in_lark(definition, text, is_fit):
    assert by_us(definition, text) == is_fit


@table(
    "definition, reason",
    [
        ("", "there is no rule or terminal named start"),
        ("start: word", "Rule 'word' used but not defined (in rule start)"),
        ('start: "a" (', "Unclosed parenthesis, at line 1 column 13"),
        ('start: "a"\nstart: "b"', "Rule 'start' defined more than once"),
        ('start: twice{"a"}\ntwice{x}: x x', "twice is a template, which is not supported"),
        ("start: A\n%declare A", "there is no rule or terminal named A"),
        ("start: A\nA: B\n%declare B", "it uses a terminal without a definition"),
        ("start: A\n%import python.A", "%import of python: only `common` can be imported"),
        ("start: a\n%import .etc.a", "%import of etc: only `common` can be imported"),
        ("start: A\n%import common.A", "Rule 'A' used but not defined (in rule start)"),
        ('start: A\nA: b\nb: "x"', "Rules aren't allowed inside terminals (NonTerminal('b') in A)"),
        ("start: /a(?=b)/", "/a(?=b)/ cannot be used: it uses lookahead or lookbehind"),
        ("start: /a b/x", "/a b/x has the flag x, which is not supported"),
        (
            'start: "b".."a"',
            '"b".."a" cannot be used: a range of characters is reversed, at character 4',
        ),
        ('start: "ab".."c"', '"ab".."c" is not a text or a range of characters'),
        ('start: "a"~3..2', "~3..2 must be in order, and at most 1000"),
        ('start: "\\U00110000"', '"\\U00110000" is not a text or a range of characters'),
        (f"start: {'(' * 5000}{')' * 5000}", "it nests too deeply"),
        ("//" + "a" * 20_000, "it is longer than 20000 characters"),
    ],
)
def test_an_unsupported_definition_is_refused_with_the_reason(definition, reason):
    with pytest.raises(InvalidLark) as caught:
        lark_expression(definition, RuleSet(plain))

    assert str(caught.value) == reason


def test_rules_that_double_a_text_are_not_inlined_and_all_automata_share_one_limit():
    doubling = "".join(f"a{at}: a{at + 1} a{at + 1}\n" for at in range(60))
    grammar = TextGrammar(TextSyntax.LARK, f'start: a0\n{doubling}a60: "y"\n', "tools[0]")
    assert len(text_tag(grammar, plain)["grammar"]) < 2000

    terms = " ".join(f"/(a|b)*a(a|b){{6}}{at}/" for at in range(500))
    with pytest.raises(NotRegular, match="too many together"):
        lark_expression(f"start: {terms}", RuleSet(plain, excluded=["</parameter>"]))
