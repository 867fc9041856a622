"""Grammar rules for regular languages and for JSON. A `RuleSet` collects the rules of one grammar.
A `Spelling` writes a set of characters in it: unchanged, or as inside a JSON string."""

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Final, assert_never

from vinery_serving.grammars.grammar import languages
from vinery_serving.grammars.grammar.ebnf import (
    EMPTY,
    NEVER,
    Alt,
    Chars,
    Expr,
    Ref,
    Repeat,
    Seq,
    Text,
    alt,
    chars,
    seq,
    text_of,
)
from vinery_serving.grammars.grammar.languages import (
    ANY_CHARS,
    Intervals,
    Language,
    NotRegular,
    TooManyStates,
)

Spelling = Callable[[Intervals], Expr]

# Real grammars have some hundred. More take seconds to translate, and engines longer to compile.
_MAX_RULES: Final = 20_000
# XGrammar tries the vocabulary at each position of a set, but once for a shared rule.
_MAX_COPIES: Final = 4
# XGrammar counts more than 128 repetitions, and then a token takes 100 ms and more. So repetitions
# come in bundles of this size.
_BUNDLE: Final = 40


class TooManyRules(NotRegular):
    """A grammar has more rules, or all its automata more states, than the rule set accepts."""

    def __init__(self) -> None:
        super().__init__("its rules and automata are too many together")


class RuleSet:
    """The rules of one grammar that is being built, from the rules of JSON on. `is_compact`: JSON
    without blanks. `excluded`: texts that no regular language of the grammar contains, because they
    would end the described text. `max_states`: of all automata together; real grammars stay far
    below 5,000."""

    def __init__(
        self,
        spell: Spelling,
        *,
        is_compact: bool = False,
        excluded: Sequence[str] = (),
        max_states: int = 5000,
    ) -> None:
        self.rules: dict[str, Expr] = dict(_json_rules("" if is_compact else " "))
        self._spell = spell
        self._demands = [languages.complement(languages.containing(excluded))] if excluded else []
        self._max_states = max_states
        self._num_states = 0
        self._num_names = 0
        self._automata: dict[Language, Ref] = {}
        self._terminals: dict[Language, Expr] = {}
        self._shared_rules: dict[Expr, Expr] = {}

    def new_name(self) -> str:
        self._num_names += 1
        if self._num_names > _MAX_RULES:
            raise TooManyRules
        return f"t{self._num_names}"

    def named(self, body: Expr) -> Expr:
        if body in (EMPTY, NEVER):
            return body
        name = self.new_name()
        self.rules[name] = body
        return Ref(name)

    def of(self, language: Language) -> Expr:
        """Return an expression for the texts of a regular language. Raises `TooManyStates` for a
        language that is too large, `TooManyRules` for too many."""
        allowed = languages.intersection(language, *self._demands)
        expr = self._expression(allowed)
        return self._automaton(allowed) if expr is None else expr

    def repeated(self, part: Expr, least: int, most: int | None) -> Expr:
        """Return `least` to `most` repetitions that compile in the time of a few."""
        end = max(least, most or 0)
        if end <= _MAX_COPIES or isinstance(part, Text):
            return Repeat(part, least, most)
        one = self._shared(part)
        if end <= 3 * _BUNDLE:
            return Repeat(one, least, most)
        bundle = Repeat(one, _BUNDLE, _BUNDLE)
        num_bundles, rest = divmod(least, _BUNDLE)
        if most is None:
            return seq(self.repeated(bundle, num_bundles, num_bundles), Repeat(one, rest, None))
        # The single repetitions after the bundles reach the next bundle: no number is left out.
        most_bundles = max(num_bundles, (most - rest + 1) // _BUNDLE - 1)
        singles = Repeat(one, rest, most - most_bundles * _BUNDLE)
        return self._shared(seq(self.repeated(bundle, num_bundles, most_bundles), singles))

    def _shared(self, part: Expr) -> Expr:
        """A rule for all uses of the part, which XGrammar compiles once."""
        if isinstance(part, Ref | Text):
            return part
        if part not in self._shared_rules:
            self._shared_rules[part] = self.named(self._with_reference(part))
        return self._shared_rules[part]

    def _with_reference(self, expr: Expr) -> Expr:
        """Return the same with a set of characters as a separate rule: XGrammar copies rules
        without references into the rules that use them."""
        match expr:
            case Chars(((first, last), *more)):
                others = () if first == last else ((first + 1, last),)
                return alt((chars(((first, first),)), self.named(chars((*others, *more)))))
            case Seq(parts) | Alt(parts):
                at = next((at for at, each in enumerate(parts) if not isinstance(each, Text)), None)
                if at is None:
                    return expr
                parts = (*parts[:at], self._with_reference(parts[at]), *parts[at + 1 :])
                return seq(*parts) if isinstance(expr, Seq) else alt(parts)
            case Repeat(part, least, most):
                return Repeat(self._with_reference(part), least, most)
            case _:
                return expr

    def terminal(self, language: Language) -> Expr:
        """Return the same as `of`, as one rule for all uses of the language."""
        if language not in self._terminals:
            expr = self.of(language)
            self._terminals[language] = expr if isinstance(expr, Text) else self.named(expr)
        return self._terminals[language]

    def text(self, root: Expr) -> str | None:
        self.rules["root"] = root
        return text_of(self.rules, "root")

    def _expression(self, part: Language) -> Expr | None:
        """An expression of the same texts; None for a language that needs an automaton."""
        match part:
            case languages.Chars(intervals):
                return self._spell(intervals)
            case languages.Cat(inner) | languages.Or(inner):
                # A frozenset has no order, and equal schemas must have equal grammars.
                parts = inner if isinstance(inner, tuple) else sorted(inner, key=repr)
                found = [expr for each in parts if (expr := self._expression(each)) is not None]
                if len(found) < len(parts):
                    return None
                return seq(*found) if isinstance(part, languages.Cat) else alt(found)
            case languages.Times(each, least, most):
                # A repetition of the empty text never ends. An automaton accepts it once.
                body = None if each.accepts_empty else self._expression(each)
                return None if body is None else self.repeated(body, least, most)
            case languages.And() | languages.Not() | languages.Multiple():
                return None
            case _:
                assert_never(part)

    def _automaton(self, language: Language) -> Ref:
        if language not in self._automata:
            try:
                states = languages.automaton(language)
            except TooManyStates:
                self._count(languages.MAX_STATES)
                raise
            self._count(len(states))
            names = {state: self.new_name() for state in states}
            is_shared = len(states) > _BUNDLE
            for state, moves in states.items():
                spelled = [(self._spell(intervals), Ref(names[to])) for intervals, to in moves]
                options = [seq(self._shared(e) if is_shared else e, to) for e, to in spelled]
                if state.accepts_empty:
                    options.append(EMPTY)
                self.rules[names[state]] = alt(options)
            self._automata[language] = Ref(names[language])
        return self._automata[language]

    def _count(self, num_states: int) -> None:
        self._num_states += num_states
        if self._num_states > self._max_states:
            raise TooManyRules


plain: Final[Spelling] = chars  # writes characters as they are

_RAW_IN_JSON: Final = languages.inverted(((0, 0x1F), (34, 34), (92, 92)))
_ESCAPED_IN_JSON: Final = languages.inverted(_RAW_IN_JSON)
_SHORT_ESCAPES: Final = {8: "b", 9: "t", 10: "n", 12: "f", 13: "r", 34: '"', 92: "\\"}


@lru_cache(maxsize=256)
def in_json(intervals: Intervals) -> Expr:
    """Write characters as inside a JSON string: escaped where JSON demands escapes. The rule `char`
    is any character in any form, `special` any character that needs an escape."""
    if intervals == ANY_CHARS:
        return Ref("char")
    raw = languages.shared(intervals, _RAW_IN_JSON)
    special = languages.shared(intervals, _ESCAPED_IN_JSON)
    options = [chars(raw)] if raw else []
    if special == _ESCAPED_IN_JSON:
        return alt([*options, Ref("special")])
    codes = [code for first, last in special for code in range(first, last + 1)]
    escapes = [_SHORT_ESCAPES.get(code, f"u{code:04x}") for code in codes]
    return alt([*options, *(Text("\\" + escape) for escape in escapes)])


COMMA: Final = seq(Text(","), Ref("sp"))
COLON: Final = seq(Text(":"), Ref("sp"))
ANY_MEMBER: Final = seq(Ref("string"), COLON, Ref("value"))


def _json_rules(blank: str) -> Iterator[tuple[str, Expr]]:
    """The rules of JSON. `blank` may follow a comma or a colon."""
    digit, hexadecimal = _set("09"), _set("09", "AF", "af")
    # Half a surrogate pair is no character, and models write a whole pair as one character.
    code = alt(
        (
            seq(_set("09", "AC", "EF", "ac", "ef"), Repeat(hexadecimal, 3, 3)),
            seq(_set("D", "d"), _set("07"), Repeat(hexadecimal, 2, 2)),
        )
    )
    yield "sp", Repeat(Text(blank), 0, 1) if blank else EMPTY
    yield "char", alt((Chars(_RAW_IN_JSON), seq(Text("\\"), Ref("escape"))))
    yield "escape", alt((_set(*'"/\\bfnrt'), seq(Text("u"), code)))
    control = seq(Text("u00"), _set("01"), hexadecimal)
    yield "special", seq(Text("\\"), alt((_set(*'"\\bfnrt'), control)))
    yield "string", seq(Text('"'), Repeat(Ref("char"), 0, None), Text('"'))
    # 20 digits, as the integers of 64 bits have.
    yield "natural", alt((Text("0"), seq(_set("19"), Repeat(digit, 0, 19))))
    yield "integer", seq(Repeat(Text("-"), 0, 1), Ref("natural"))
    fraction = seq(Text("."), Repeat(digit, 1, 16))
    exponent = seq(_set("E", "e"), Repeat(_set("+", "-"), 0, 1), Repeat(digit, 1, 2))
    yield "positive", seq(Ref("natural"), Repeat(fraction, 0, 1), Repeat(exponent, 0, 1))
    yield "number", seq(Repeat(Text("-"), 0, 1), Ref("positive"))
    yield "boolean", alt((Text("true"), Text("false")))
    yield "null", Text("null")
    kinds = ("object", "array", "string", "number", "boolean", "null")
    yield "value", alt(Ref(kind) for kind in kinds)
    yield "object", seq(Text("{"), some_of(ANY_MEMBER, 0, None, is_first=True), Text("}"))
    yield "array", seq(Text("["), some_of(Ref("value"), 0, None, is_first=True), Text("]"))


def _set(*ranges: str) -> Expr:
    """A set of characters from sorted ranges: the first and last character of each."""
    return Chars(tuple((ord(each[0]), ord(each[-1])) for each in ranges))


def some_of(part: Expr, least: int, most: int | None, *, is_first: bool) -> Expr:
    """Return `least` to `most` parts with commas between them; None: no upper bound. Unless
    `is_first`, a comma precedes the first part, too."""
    if most is not None and most < least:
        return NEVER
    following = seq(COMMA, part)
    if not is_first:
        return Repeat(following, least, most)
    if most == 0:
        return EMPTY
    top = None if most is None else most - 1
    whole = seq(part, Repeat(following, max(0, least - 1), top))
    return whole if least else Repeat(whole, 0, 1)
