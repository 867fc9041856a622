"""Token ids -> text, one token at a time, and never half a character.

Bytes are held back until a character is whole, and become U+FFFD if the generation ends first.
Special tokens leave no text, except syntax of the model's output format. `tokenizers.DecodeStream`
needs less than a microsecond for a token; a model with only an OpenVINO detokenizer decodes a short
window of the last tokens again for each token.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, Self

from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream

_HALF_CHARACTER = "\ufffd"

# A character has four bytes at most. More held tokens than this are bytes that never become a
# character, and holding them would cost more time with each token.
_MAX_HELD = 32

# The window of the OpenVINO decoder is shortened at this length. Decoding costs nearly the same
# for 1 token and for 32.
_MAX_WINDOW = 32


class Decoder(Protocol):
    dropped_ids: frozenset[int]  # these tokens leave no text at any position

    def feed(self, token_id: int) -> str:
        """Return the text that this token completes: "" in the middle of a character."""

    def feed_all(self, token_ids: Sequence[int]) -> str:
        """Return the text that these tokens complete."""

    def finish(self) -> str:
        """Return the text that was held back."""


class VinoTokenizer(Protocol):
    """The method of `openvino_genai.Tokenizer` that decoders need."""

    def decode(self, tokens: list[int], skip_special_tokens: bool = ...) -> str: ...  # noqa: FBT001


@dataclass(frozen=True, slots=True)
class Detokenizer:
    raw: Tokenizer | VinoTokenizer
    dropped_ids: frozenset[int]

    @classmethod
    def keeping(
        cls, raw: Tokenizer | VinoTokenizer, special_texts: Mapping[int, str], kept: Collection[str]
    ) -> Self:
        """Return a detokenizer that drops the special tokens whose text is not in `kept`."""
        dropped = (id_ for id_, text in special_texts.items() if text not in kept)
        return cls(raw, frozenset(dropped))

    def new_decoder(self, after: Sequence[int] = ()) -> Decoder:
        """Return a decoder for one choice. The choice continues the text of the tokens `after`, if
        any: many tokenizers drop the first space of a text."""
        context = self._context(after)
        if isinstance(self.raw, Tokenizer):
            return FastDecoder(self.raw, self.dropped_ids, context)
        return WindowDecoder(self.raw, self.dropped_ids, context)

    def _context(self, after: Sequence[int]) -> int | None:
        """The last token whose text is whole characters. Decoders do not return its text."""
        for token_id in reversed(after[-_MAX_HELD:]):
            if token_id not in self.dropped_ids:
                text = self.raw.decode([token_id], skip_special_tokens=False)
                if text and _HALF_CHARACTER not in text:
                    return token_id
        return None


class FastDecoder:
    def __init__(
        self, tokenizer: Tokenizer, dropped_ids: frozenset[int], context: int | None = None
    ) -> None:
        self._tokenizer = tokenizer
        self.dropped_ids = dropped_ids
        self._stream = DecodeStream(skip_special_tokens=False)
        self._held: list[int] = []
        self._context: list[int] = []  # the last tokens whose text was returned
        if context is not None:
            self._restart([context])

    def feed(self, token_id: int) -> str:
        if token_id in self.dropped_ids:
            return ""
        try:
            text = self._stream.step(self._tokenizer, token_id)
        except Exception:  # the library has no other type; the bytes so far were no text
            return self._give_up(token_id)
        if text is None:
            self._held.append(token_id)
            return self._give_up() if len(self._held) > _MAX_HELD else ""
        self._context = [*self._held, token_id]
        self._held.clear()
        return text

    def feed_all(self, token_ids: Sequence[int]) -> str:
        """One call of the library for all tokens takes a tenth of the time of a call for each
        token."""
        if len(token_ids) > 1 and not self._held and self.dropped_ids.isdisjoint(token_ids):
            ids = list(token_ids)
            try:
                text = self._stream.step(self._tokenizer, ids)
            except Exception:  # as in `feed`, or an older library, which takes only one token
                text = None
            if text is not None and _HALF_CHARACTER not in text:
                self._context = ids
                return text
            # The tokens end with half a character, or were no text. Some libraries then replace
            # more bytes than for one token at a time.
            self._restart(self._context)
        return "".join(map(self.feed, token_ids))

    def finish(self) -> str:
        held, self._held = self._held, []
        return self._decode(held)

    def _decode(self, token_ids: list[int]) -> str:
        return self._tokenizer.decode(token_ids, skip_special_tokens=False)

    def _give_up(self, *unread: int) -> str:
        """Return the held text although it is damaged."""
        held, self._held = [*self._held, *unread], []
        # The unread token comes first, so that the next token does not begin a text, where some
        # tokenizers drop a space.
        self._restart(unread)
        return self._decode(held)

    def _restart(self, token_ids: Sequence[int]) -> None:
        """Start a stream after these tokens, whose text is not returned."""
        self._context = list(token_ids)
        self._stream = DecodeStream(skip_special_tokens=False)
        for token_id in token_ids:
            self._stream.step(self._tokenizer, token_id)


class WindowDecoder:
    """Decodes by an `openvino_genai.Tokenizer`, which keeps no state between calls."""

    def __init__(
        self, tokenizer: VinoTokenizer, dropped_ids: frozenset[int], context: int | None = None
    ) -> None:
        self._tokenizer = tokenizer
        self.dropped_ids = dropped_ids
        self._window: list[int] = [] if context is None else [context]
        self._num_sent_tokens = len(self._window)
        self._num_sent_chars = len(self._decode()) if self._window else 0
        self._cut = 0  # tokens before this index are context only, and are dropped next

    def feed(self, token_id: int) -> str:
        if token_id in self.dropped_ids:
            return ""
        self._window.append(token_id)
        text = self._decode()
        num_held = len(self._window) - self._num_sent_tokens
        if text.endswith(_HALF_CHARACTER) and num_held <= _MAX_HELD:
            return ""
        new = text[self._num_sent_chars :]
        self._advance(text)
        return new

    def feed_all(self, token_ids: Sequence[int]) -> str:
        return "".join(map(self.feed, token_ids))

    def finish(self) -> str:
        rest = self._decode()[self._num_sent_chars :] if self._window else ""
        self._window.clear()
        self._num_sent_chars = 0
        return rest

    def _advance(self, text: str) -> None:
        if len(self._window) - self._cut >= _MAX_WINDOW // 2:
            self._window = self._window[self._cut :]
            self._cut = len(self._window)
            text = self._decode()
        self._num_sent_tokens = len(self._window)
        self._num_sent_chars = len(text)

    def _decode(self) -> str:
        return self._tokenizer.decode(self._window, skip_special_tokens=False)
