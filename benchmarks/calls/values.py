"""The tools of a sample, and random calls of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from vinery_serving.core.request import Tool

TOOLS: Final = (
    Tool(
        "get_weather",
        None,
        {
            "type": "object",
            "properties": {
                "city": {"type": "string"},
                "note": {"type": "string"},
                "days": {"type": "integer"},
                "share": {"type": "number"},
                "is_hot": {"type": "boolean"},
                "at": {"type": "array"},
                "more": {"type": "object"},
                "any": {},
            },
        },
    ),
    Tool("set_alarm", None, {"type": "object", "properties": {"text": {"type": "string"}}}),
    Tool("ping"),
)

_WORDS: Final = (
    *("Paris", "New York", "2026-11-25", "a@b.example", "München", "東京", "naïve", "x_1"),
    *("😀 fine", "20 °C", "rain/snow", "line 1", "Ω", "a+b", "no. 7", "Łódź"),
)
# What readers of calls trip over. All can be written in every notation.
_ODD_STRINGS: Final = (
    *("", " ", "  blanks  ", "null", "None", "True", "5", "-", "}{][", "{", "]", "[1, 2"),
    *('a "quoted" word', '"', "it's", "'", '"""', "one; two", "a, b], c)", "x=1, y=2", ": ", ", "),
    *("back\\slash", "ends with \\", "\\d+\\s*", "C:\\new\\table", "\\\\server\\share", "\\u12"),
    *("two\nlines", "\ttabs\t", "a\r\nb", "<b>x</b>", "a < b", "&amp;", "</div>", "<|x|>"),
    *('{"name": "ping", "arguments": {}}', 'print(f"{x}")', "```json\n{}\n```", "[ping()]"),
    *("😀", "👩‍👩‍👧", "é", "\u2028", "\x7f", "ﷺ", "عربي", "a\u0301"),
)


@dataclass(frozen=True, slots=True)
class Call:
    """A call as the model means it."""

    name: str
    arguments: dict[str, Any]


class Drawing:
    """Draws calls. The same generator of random numbers gives the same calls."""

    def __init__(self, random: Random) -> None:
        self.random = random

    def calls(self, *, are_odd: bool = False) -> list[Call]:
        """Return one to three calls. One of them has arguments of every kind."""
        calls = [self._small_call() for _ in range(self.random.randint(0, 2))]
        calls.insert(self.random.randint(0, len(calls)), self.call(are_odd=are_odd))
        return calls

    def call(self, *, are_odd: bool = False) -> Call:
        """Return a call with strings, and more."""
        values = {
            "city": self.string(is_odd=are_odd),
            "note": self.string(is_odd=are_odd),
            "days": self.random.randint(-9, 99),
            "share": self.random.choice((0.5, -1.25, 2.0, 1e9)),
            "is_hot": self.random.random() < 0.5,
            "at": self._array(are_odd=are_odd),
            "more": self._object(are_odd=are_odd),
            "any": self.random.choice((None, True, 7, [1, "b"], {"c": None})),
        }
        chosen = self.random.sample(sorted(values), self.random.randint(2, 5))
        if not {"city", "note"} & set(chosen):
            chosen.insert(self.random.randint(0, len(chosen)), "city")
        return Call("get_weather", {key: values[key] for key in chosen})

    def string(self, *, is_odd: bool = False) -> str:
        if not is_odd:
            return self.random.choice(_WORDS)
        return self.random.choice((*_ODD_STRINGS, self._mixture()))

    def pick(self, choices: Sequence[Any]) -> Any:
        return self.random.choice(choices)

    def _mixture(self) -> str:
        return "".join(
            self.random.choices("ab{}[]()\"'\\;,=<>/|: \n😀é", k=self.random.randint(1, 12))
        )

    def _small_call(self) -> Call:
        if self.random.random() < 0.4:
            return Call("ping", {})
        return Call("set_alarm", {"text": self.string()})

    def _array(self, *, are_odd: bool) -> list[Any]:
        items = (self.string(is_odd=are_odd), 1, True, None, {"k": self.string(is_odd=are_odd)})
        return self.random.sample(items, self.random.randint(0, 3))

    def _object(self, *, are_odd: bool) -> dict[str, Any]:
        values = {"a": self.string(is_odd=are_odd), "b": {"c": [False, None]}, "d": 2, "e f": []}
        return {key: values[key] for key in self.random.sample(sorted(values), 2)}
