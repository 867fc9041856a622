"""Token ids -> text, one token at a time, and never half a character.

A character may be spread over several tokens: their text is held back until it is whole,
and comes out as U+FFFD if the generation ends first. Special tokens leave no text, except
those that are syntax to the model's output format.

`tokenizers.DecodeStream` does this in under a microsecond a token. For models that come
with an OpenVINO detokenizer only, a short window of the last tokens is decoded again for
each token, which costs about eighty times as much.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, Self

from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream

_HALF_CHARACTER = "\ufffd"

# A character has four bytes at most. More held tokens than this are not half a character
# but bytes that never become one, and holding them would cost ever more time.
_MAX_HELD = 32

# The window of the OpenVINO decoder is cut back when it is this long. Its cost is nearly
# the same for 1 token and for 32.
_MAX_WINDOW = 32


class Decoder(Protocol):
    """The text of one choice."""

    def feed(self, token_id: int) -> str:
        """The text that this token completes, often "" in the middle of a character."""

    def finish(self) -> str:
        """What was held back."""

    def drops(self, token_id: int) -> bool:
        """Whether this token leaves no text, wherever it stands."""


class VinoTokenizer(Protocol):
    """The one method of `openvino_genai.Tokenizer` that is needed here."""

    def decode(self, tokens: list[int], skip_special_tokens: bool = ...) -> str: ...  # noqa: FBT001


@dataclass(frozen=True, slots=True)
class Detokenizer:
    """Makes decoders for one model and one output format."""

    raw: Tokenizer | VinoTokenizer
    dropped_ids: frozenset[int]

    @classmethod
    def keeping(
        cls,
        raw: Tokenizer | VinoTokenizer,
        special_texts: Mapping[int, str],
        kept: Collection[str],
    ) -> Self:
        """Drop all special tokens but those whose text is in `kept`."""
        dropped = (id_ for id_, text in special_texts.items() if text not in kept)
        return cls(raw, frozenset(dropped))

    def new_decoder(self, after: Sequence[int] = ()) -> Decoder:
        """A decoder for one choice, which begins a text unless it goes on `after` tokens that
        have some: many tokenizers drop the space with which a text begins."""
        context = self._context(after)
        if isinstance(self.raw, Tokenizer):
            return FastDecoder(self.raw, self.dropped_ids, context)
        return WindowDecoder(self.raw, self.dropped_ids, context)

    def _context(self, after: Sequence[int]) -> int | None:
        """The last token with text of its own, and with whole characters of it."""
        for token_id in reversed(after[-_MAX_HELD:]):
            if token_id not in self.dropped_ids:
                text = self.raw.decode([token_id], skip_special_tokens=False)
                if text and _HALF_CHARACTER not in text:
                    return token_id
        return None


class FastDecoder:
    """Decodes by a `tokenizers.Tokenizer`."""

    def __init__(
        self, tokenizer: Tokenizer, dropped_ids: frozenset[int], context: int | None = None
    ) -> None:
        """`context` is a token that goes before, and is not told."""
        self._tokenizer = tokenizer
        self._dropped_ids = dropped_ids
        self._stream = DecodeStream(skip_special_tokens=False)
        self._held: list[int] = []
        if context is not None:
            self._stream.step(tokenizer, context)

    def feed(self, token_id: int) -> str:
        if token_id in self._dropped_ids:
            return ""
        try:
            text = self._stream.step(self._tokenizer, token_id)
        except Exception:  # its only type; it means that bytes told so far were no text
            return self._give_up(token_id)
        if text is None:
            self._held.append(token_id)
            return self._give_up() if len(self._held) > _MAX_HELD else ""
        self._held.clear()
        return text

    def drops(self, token_id: int) -> bool:
        return token_id in self._dropped_ids

    def finish(self) -> str:
        held, self._held = self._held, []
        return self._decode(held)

    def _decode(self, token_ids: list[int]) -> str:
        return self._tokenizer.decode(token_ids, skip_special_tokens=False)

    def _give_up(self, *unread: int) -> str:
        """Tell what is held although it is no proper text, and start afresh after it."""
        held = [*self._held, *unread]
        self._held = [] if unread else self._half_character(held)
        self._stream = DecodeStream(skip_special_tokens=False)
        # The last token goes first, so that the next one does not begin a text: some
        # tokenizers drop a space there.
        for token_id in self._held or held[-1:]:
            self._stream.step(self._tokenizer, token_id)
        return self._decode(held[: len(held) - len(self._held)])

    def _half_character(self, held: list[int]) -> list[int]:
        """The last tokens, if they may still become a character."""
        text = self._decode(held)
        for count in (3, 2, 1):
            if self._decode(held[:-count]) + self._decode(held[-count:]) == text:
                return held[-count:]
        return []


class WindowDecoder:
    """Decodes by an `openvino_genai.Tokenizer`, which has no state of its own to go on from."""

    def __init__(
        self, tokenizer: VinoTokenizer, dropped_ids: frozenset[int], context: int | None = None
    ) -> None:
        """`context` is a token that goes before, and is not told."""
        self._tokenizer = tokenizer
        self._dropped_ids = dropped_ids
        self._window: list[int] = [] if context is None else [context]
        self._num_told_tokens = len(self._window)
        self._num_told_chars = len(self._decode()) if self._window else 0
        # Tokens before this one are context only, and are cut away next.
        self._cut = 0

    def feed(self, token_id: int) -> str:
        if token_id in self._dropped_ids:
            return ""
        self._window.append(token_id)
        text = self._decode()
        num_held = len(self._window) - self._num_told_tokens
        if text.endswith(_HALF_CHARACTER) and num_held <= _MAX_HELD:
            return ""
        new = text[self._num_told_chars :]
        self._advance(text)
        return new

    def drops(self, token_id: int) -> bool:
        return token_id in self._dropped_ids

    def finish(self) -> str:
        rest = self._decode()[self._num_told_chars :] if self._window else ""
        self._window.clear()
        self._num_told_chars = 0
        return rest

    def _advance(self, text: str) -> None:
        if len(self._window) - self._cut >= _MAX_WINDOW // 2:
            self._window = self._window[self._cut :]
            self._cut = len(self._window)
            text = self._decode()
        self._num_told_tokens = len(self._window)
        self._num_told_chars = len(text)

    def _decode(self) -> str:
        return self._tokenizer.decode(self._window, skip_special_tokens=False)
