"""The token ids of one choice -> its events: decode, then parse."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Literal

from vinery_serving.core.events import (
    REPETITION,
    Event,
    Finished,
    FinishReason,
    Token,
    without_leading_spaces,
)
from vinery_serving.core.request import Repetition
from vinery_serving.output.attribution import Attribution
from vinery_serving.output.detokenize import Decoder
from vinery_serving.output.lexer import Parser
from vinery_serving.output.stop import RepetitionDetector
from vinery_serving.output.writer import EventWriter


class ChoiceReader:
    """Reads one choice. `parser` writes to `writer`. A choice ends at a stop string, at one of
    `stop_ids` (the client's) or `end_ids` (the model's), or at a `repetition`, but not before
    `min_tokens` tokens. The text of a stop token is kept if `include_stop_text`.
    `exposes_silent_tokens`: tokens without text are exposed too, such as the token that ends the
    choice."""

    def __init__(
        self,
        writer: EventWriter,
        decoder: Decoder,
        parser: Parser,
        *,
        stop_ids: Collection[int] = (),
        end_ids: Collection[int] = (),
        include_stop_text: bool = False,
        repetition: Repetition | None = None,
        min_tokens: int = 0,
        exposes_silent_tokens: bool = False,
    ) -> None:
        self._writer = writer
        self._decoder = decoder
        self._parser = parser
        self._stop_ids = frozenset(stop_ids)
        self._all_stop_ids = self._stop_ids.union(end_ids)
        self._include_stop_text = include_stop_text
        self._detector = RepetitionDetector(repetition) if repetition is not None else None
        self._min_tokens = min_tokens
        self._exposes_silent_tokens = exposes_silent_tokens
        self._met_stop_id: int | None = None
        self._is_repeating = False
        self._has_begun = False  # a token was exposed
        self.num_output_tokens = 0  # tokens after a stop string do not count
        # From the first token of the reasoning to its closing tag, both included.
        self.num_reasoning_tokens = 0

    @property
    def is_stopped(self) -> bool:
        """Whether the choice has ended. The engine need not go on; more tokens are ignored."""
        is_stopped_by_token = self._is_repeating or self._met_stop_id is not None
        return is_stopped_by_token or self._writer.is_stopped

    def feed(self, token_ids: Sequence[int], tokens: Sequence[Token] = ()) -> list[Event]:
        """Return the events of these tokens. Text that belongs together is one delta. `tokens`
        describe the same tokens, for a writer that exposes them."""
        attribution = self._writer.attribution
        if attribution is None and self._is_only_text(token_ids):
            self.num_output_tokens += len(token_ids)
            if all_text := self._decoder.feed_all(token_ids):
                self._parser.feed(all_text)
        elif attribution is None:
            for token_id in token_ids:
                if self.is_stopped:
                    break
                self._read(self._decoded(token_id))
        else:
            for token in tokens:
                if self.is_stopped:
                    break
                text = self._decoded(token.id)
                self._attribute(token, text or "", attribution)
                self._read(text)
        return self._writer.take()

    def finish(self, reason: Literal["stop", "length"]) -> list[Event]:
        """Return the held text, and the end. `reason` is why the engine ended."""
        writer = self._writer
        if not writer.is_stopped:
            text = self._decoder.finish()
            if writer.attribution is not None:
                writer.attribution.extend(text)
            if text:
                self._parser.feed(text)
            # If a client's stop id or a repetition has ended it, the text may be cut anywhere.
            is_cut = self._is_repeating or self._met_stop_id in self._stop_ids
            self._parser.finish(is_closed=reason == "stop" and not is_cut)
            writer.finish()
        if self._exposes_silent_tokens:
            writer.write_silent_tokens()
        finish_reason = self._finish_reason(FinishReason(reason))
        return [*writer.take(), Finished(writer.choice, finish_reason, self._cause)]

    def _is_only_text(self, token_ids: Sequence[int]) -> bool:
        """Whether these tokens are only text, as most tokens of most answers: no token ends the
        choice or is reasoning."""
        return (
            self._parser.write_rest is not None
            and not self._parser.is_reasoning
            and self._writer.stops is None
            and self._detector is None
            and not self.is_stopped
            and self._all_stop_ids.isdisjoint(token_ids)
        )

    def _decoded(self, token_id: int) -> str | None:
        """Count a token and return its text. None: the token ends the choice without text."""
        self.num_output_tokens += 1
        is_past_minimum = self.num_output_tokens > self._min_tokens
        self._writer.checks_stop = is_past_minimum
        if self._detector is not None and self._detector.feed(token_id):
            self._is_repeating = self.num_output_tokens >= self._min_tokens
        if is_past_minimum and token_id in self._all_stop_ids:
            self._met_stop_id = token_id
            if not self._include_stop_text:
                return None
        return self._decoder.feed(token_id)

    def _read(self, text: str | None) -> None:
        if text is None:
            return
        was_reasoning = self._parser.is_reasoning
        if text:
            self._parser.feed(text)
        if was_reasoning or self._parser.is_reasoning:
            self.num_reasoning_tokens += 1

    def _attribute(self, token: Token, text: str, attribution: Attribution) -> None:
        if token.id not in self._decoder.dropped_ids:
            attribution.feed(self._without_dropped_spaces(token, text), text)
        elif self._exposes_silent_tokens:
            attribution.feed(replace(token, raw=b""), "")

    def _without_dropped_spaces(self, token: Token, text: str) -> Token:
        """The text of the first token may lack spaces that the token has."""
        is_first, self._has_begun = not self._has_begun, True
        dropped = token.raw.removesuffix(text.encode()) if is_first else b""
        if not dropped or dropped.strip(b" "):
            return token
        return without_leading_spaces(token, len(dropped))

    @property
    def _cause(self) -> str | int | None:
        if self._writer.stop_string is not None:
            return self._writer.stop_string
        if self._met_stop_id in self._stop_ids:
            return self._met_stop_id
        return REPETITION if self._is_repeating else None

    def _finish_reason(self, reason: FinishReason) -> FinishReason:
        """A client has no use for a call that is cut: the reason is not TOOL_CALLS then."""
        is_cut = self._is_repeating or reason is FinishReason.LENGTH
        if self._writer.has_open_call and is_cut:
            return FinishReason.STOP if self._is_repeating else reason
        if self._writer.num_calls:
            return FinishReason.TOOL_CALLS
        return FinishReason.STOP if self.is_stopped else reason
