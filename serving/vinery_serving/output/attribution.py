"""Finds the tokens that a part of the answer's text came from. Parsers between tokens and text drop
syntax and hold text back. Both keep the order of characters, so the search for a text starts where
the former text ended. The text begins right there; if syntax was dropped, the text is the end of
all decoded text."""

from dataclasses import dataclass

from vinery_serving.core.events import Token


@dataclass(slots=True)
class _Pending:
    token: Token
    text: str
    is_taken: bool = False


class Attribution:
    def __init__(self) -> None:
        self._pending: list[_Pending] = []

    def feed(self, token: Token, text: str) -> None:
        """Add a decoded token. `text` is "" in the middle of a character."""
        self._pending.append(_Pending(token, text))

    def extend(self, text: str) -> None:
        if self._pending:
            self._pending[-1].text += text

    def drop(self) -> None:
        """Forget all tokens so far: their text was no answer."""
        self._pending.clear()

    def take(self, text: str) -> tuple[Token, ...]:
        """Return the tokens of this text. Each token comes once, with the first text that has
        a part of it."""
        start = self._find(text)
        end = start + len(text)
        tokens: list[Token] = []
        rest: list[_Pending] = []
        at = 0
        for pending in self._pending:
            begins, at = at, at + len(pending.text)
            # A token without text is at the beginning of its character.
            is_inside = begins < end and (at > start or begins >= start)
            if is_inside and not pending.is_taken:
                tokens.append(pending.token)
                pending.is_taken = True
            if at > end or begins >= end:
                pending.text = pending.text[max(0, end - begins) :]
                rest.append(pending)
        self._pending = rest
        return tuple(tokens)

    def take_silent(self) -> tuple[Token, ...]:
        """Return the tokens without text that came after the last text."""
        silent = [each.token for each in self._pending if not each.is_taken and not each.text]
        self._pending.clear()
        return tuple(silent)

    def _find(self, part: str) -> int:
        text = "".join(pending.text for pending in self._pending)
        if text.startswith(part):
            return 0
        if text.endswith(part):
            return len(text) - len(part)
        return max(0, text.find(part))
