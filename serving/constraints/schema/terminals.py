"""Regular parts of a larger grammar: each is spelled as the place wants it where it stands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from serving.constraints.schema.ebnf import Expr, Ref, Text
from serving.constraints.schema.pattern import IrregularPattern
from serving.constraints.schema.regular import (
    ANYTHING,
    Regular,
    Spelling,
    TooManyStates,
    as_expr,
    as_rules,
    both,
    but_not,
    cat,
    either,
    literal,
)

# Real grammars stay far below.
_MAX_RULES: Final = 5000


class Terminals:
    """Collects the rules of one grammar. No part holds a text of `unwanted`: that would end
    what the grammar describes."""

    def __init__(self, spell: Spelling, unwanted: Sequence[str] = ()) -> None:
        self.rules: dict[str, Expr] = {}
        self._spell = spell
        ends = either(cat(ANYTHING, literal(text), ANYTHING) for text in unwanted)
        self._wanted = but_not(ends) if unwanted else ANYTHING
        self._known: dict[Regular, Expr] = {}
        self._num_names = 0

    def of(self, language: Regular) -> Expr:
        """An expression for these texts: the same one each time. Raises `IrregularPattern`."""
        if language not in self._known:
            self._known[language] = self._spelled(both(language, self._wanted))
        return self._known[language]

    def _spelled(self, wanted: Regular) -> Expr:
        expr = as_expr(wanted, self._spell)
        if expr is not None:
            return expr if isinstance(expr, Text) else self.named(expr)
        name = self.new_name()
        try:
            self.rules |= as_rules(wanted, self._spell, name)
        except TooManyStates:
            raise IrregularPattern("its automaton is too large") from None
        if len(self.rules) > _MAX_RULES:
            raise IrregularPattern("its automata are too large together")
        return Ref(name)

    def named(self, body: Expr) -> Expr:
        """A rule of its own."""
        name = self.new_name()
        self.rules[name] = body
        return Ref(name)

    def new_name(self) -> str:
        """A name that no other rule has."""
        self._num_names += 1
        return f"t{self._num_names}"
