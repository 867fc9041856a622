"""Token ids of one choice -> its events: decode, then parse, then look for stop strings.

Stop strings come last because they are about the answer that a client reads: a thought or
the syntax of a tool call must not end a choice, and neither may a stop string be made of
text from both sides of a call.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Literal, assert_never

from serving.core.events import (
    REPETITION,
    Event,
    Finished,
    FinishReason,
    ReasoningDelta,
    TextDelta,
    ToolArgsDelta,
    ToolCallStarted,
    ToolInputDelta,
)
from serving.core.logprobs import Token, without_leading_spaces
from serving.core.request import Repetition
from serving.output.attribution import Attribution
from serving.output.detokenize import Decoder
from serving.output.parse_events import (
    CallArgs,
    CallEnded,
    CallInput,
    CallStarted,
    Parser,
    Piece,
    Reasoning,
    Text,
)
from serving.output.repetition import RepetitionDetector
from serving.output.stop import StopStrings


class ChoiceReader:
    """Reads one choice. `new_call_id` gives the id of the choice's call of that index.

    `stop_ids` end it too, and so do `end_ids`, the model's own: their text is treated as that
    of a stop string. None of these, nor a `repetition`, ends it before `min_tokens` tokens:
    text up to there is no part of a stop string.
    `tells_tokens`: those that the answer's text came of; with `tells_silent_tokens` also those
    that leave none, such as the one that ends it.
    """

    def __init__(
        self,
        choice: int,
        decoder: Decoder,
        parser: Parser,
        *,
        stop: Sequence[str] = (),
        include_stop_text: bool = False,
        stop_ids: Collection[int] = (),
        end_ids: Collection[int] = (),
        repetition: Repetition | None = None,
        min_tokens: int = 0,
        hides_reasoning: bool = False,
        tells_tokens: bool = False,
        tells_silent_tokens: bool = False,
        new_call_id: Callable[[int], str],
    ) -> None:
        self._choice = choice
        self._decoder = decoder
        self._parser = parser
        self._stop = StopStrings(stop, include=include_stop_text) if stop else None
        self._stop_ids = frozenset(stop_ids)
        self._all_stop_ids = self._stop_ids.union(end_ids)
        self._detector = RepetitionDetector(repetition) if repetition is not None else None
        self._is_circling = False
        self._include_stop_text = include_stop_text
        self._min_tokens = min_tokens
        self._hides_reasoning = hides_reasoning
        self._met_stop_id: int | None = None
        # Which tokens the text came of, for those who ask.
        self._tokens: Attribution[Token] | None = Attribution() if tells_tokens else None
        self._tells_silent_tokens = tells_silent_tokens
        self._last_text = ""  # of the last token
        self._has_begun = False  # a token has been told
        self._new_call_id = new_call_id
        self._num_calls = 0
        self._has_open_call = False
        # Ends with the last token that mattered: those after a stop string do not count.
        self.num_output_tokens = 0
        # From the first token of the thought to its closing tag, both included.
        self.num_reasoning_tokens = 0

    @property
    def is_stopped(self) -> bool:
        """Whether a stop string or a stop id was met, or a repetition. The engine need not go
        on; more is ignored."""
        return self._is_circling or self._met_stop_id is not None or self._has_stop_text

    def feed(self, token_ids: Sequence[int], tokens: Sequence[Token] = ()) -> list[Event]:
        """The events that these tokens make. Text that belongs together is one delta.

        `tokens` describe the same tokens, for a reader that tells them.
        """
        if self._tokens is not None:
            return self._feed_telling(tokens, self._tokens)
        pieces: list[Piece] = []
        for token_id in token_ids:
            if self.is_stopped:
                break
            pieces += self._read(token_id)
        return self._events(pieces)

    def _feed_telling(self, tokens: Sequence[Token], told: Attribution[Token]) -> list[Event]:
        """One token at a time, so that it is known which text came of it."""
        events: list[Event] = []
        for token in tokens:
            if self.is_stopped:
                break
            pieces = self._read(token.id)
            if not self._decoder.drops(token.id):
                told.feed(self._as_told(token), self._last_text)
            elif self._tells_silent_tokens:
                told.feed(replace(token, raw=b""), "")
            events = merged(events, self._events(pieces))
        return events

    def _as_told(self, token: Token) -> Token:
        """The token as the text has it: its first may lack spaces of its own."""
        is_first, self._has_begun = not self._has_begun, True
        dropped = token.raw.removesuffix(self._last_text.encode()) if is_first else b""
        if not dropped or dropped.strip(b" "):
            return token
        return without_leading_spaces(token, len(dropped))

    def finish(self, reason: Literal["stop", "length"]) -> list[Event]:
        """What was held back, and the end. `reason` is why the engine ended."""
        pieces: list[Piece] = []
        if not self._has_stop_text:
            pieces = self._through_stop(self._last_pieces())
        if not self._has_stop_text:
            pieces += self._release()
        events = merged(self._events(pieces), self._silent_rest())
        finish_reason = self._finish_reason(FinishReason(reason))
        return [*events, Finished(self._choice, finish_reason, self._cause)]

    @property
    def _has_stop_text(self) -> bool:
        return self._stop is not None and self._stop.is_met

    def _read(self, token_id: int) -> list[Piece]:
        was_reasoning = self._parser.is_reasoning
        self.num_output_tokens += 1
        if self._detector is not None and self._detector.feed(token_id):
            self._is_circling = self.num_output_tokens >= self._min_tokens
        if token_id in self._all_stop_ids and self.num_output_tokens > self._min_tokens:
            self._met_stop_id = token_id
            if not self._include_stop_text:
                self._last_text = ""
                return []
        text = self._last_text = self._decoder.feed(token_id)
        pieces = self._parser.feed(text) if text else []
        self.num_reasoning_tokens += was_reasoning or self._parser.is_reasoning
        return self._through_stop(pieces)

    def _last_pieces(self) -> list[Piece]:
        text = self._decoder.finish()
        if self._tokens is not None and text:
            self._tokens.extend(text)
        return [*(self._parser.feed(text) if text else []), *self._parser.finish()]

    def _silent_rest(self) -> list[Event]:
        """The last tokens that were asked for, but have no text to come with."""
        if self._tokens is None or not self._tells_silent_tokens:
            return []
        tokens = tuple(self._tokens.take_silent())
        return [TextDelta(self._choice, "", tokens)] if tokens else []

    def _through_stop(self, pieces: list[Piece]) -> list[Piece]:
        if self._stop is None or self.num_output_tokens <= self._min_tokens:
            return pieces
        passed: list[Piece] = []
        for piece in pieces:
            if self._stop.is_met:
                break
            if isinstance(piece, Text):
                text = self._stop.feed(piece.text)
                passed += [Text(text)] if text else []
            else:
                passed += [*self._release(), piece]
        return passed

    def _release(self) -> list[Piece]:
        text = self._stop.release() if self._stop else ""
        return [Text(text)] if text else []

    def _events(self, pieces: list[Piece]) -> list[Event]:
        events: list[Event] = []
        for piece in pieces:
            event = self._event(piece)
            if event is not None:
                events = merged(events, (event,))
        return events

    def _event(self, piece: Piece) -> Event | None:
        match piece:
            case Text(text):
                tokens = () if self._tokens is None else tuple(self._tokens.take(text))
                return TextDelta(self._choice, text, tokens)
            case Reasoning(text):
                if self._tokens is not None:
                    self._tokens.take(text)
                return None if self._hides_reasoning else ReasoningDelta(self._choice, text)
            case CallStarted():
                self._drop_tokens()
                return self._start_call(piece)
            case CallArgs(text):
                self._drop_tokens()
                return ToolArgsDelta(self._choice, self._num_calls - 1, text)
            case CallInput(text):
                self._drop_tokens()
                return ToolInputDelta(self._choice, self._num_calls - 1, text)
            case CallEnded():
                self._drop_tokens()
                self._has_open_call = False
                return None
            case _:
                assert_never(piece)

    def _drop_tokens(self) -> None:
        """Tokens of a call are not told: its text is not the answer's."""
        if self._tokens is not None:
            self._tokens.drop()

    def _start_call(self, call: CallStarted) -> ToolCallStarted:
        index = self._num_calls
        self._num_calls += 1
        self._has_open_call = True
        call_id = self._new_call_id(index)
        return ToolCallStarted(self._choice, index, call_id, call.name, call.is_custom)

    @property
    def _cause(self) -> str | int | None:
        if self._stop is not None and self._stop.met is not None:
            return self._stop.met
        if self._met_stop_id in self._stop_ids:
            return self._met_stop_id
        return REPETITION if self._is_circling else None

    def _finish_reason(self, reason: FinishReason) -> FinishReason:
        """A call that was cut is of no use to a client: that is no TOOL_CALLS."""
        if self._has_open_call and (self._is_circling or reason is FinishReason.LENGTH):
            return FinishReason.STOP if self._is_circling else reason
        if self._num_calls:
            return FinishReason.TOOL_CALLS
        return FinishReason.STOP if self.is_stopped else reason


def merged(events: list[Event], more: Sequence[Event]) -> list[Event]:
    """All of them in order, those that are parts of the same text as one."""
    for event in more:
        both = _merge(events[-1], event) if events else None
        if both is None:
            events.append(event)
        else:
            events[-1] = both
    return events


def _merge(last: Event, event: Event) -> Event | None:
    """Both as one, where both are parts of the same text."""
    match last, event:
        case TextDelta(choice, before, tokens), TextDelta(_, after, more):
            return TextDelta(choice, before + after, tokens + more)
        case ReasoningDelta(choice, before), ReasoningDelta(_, after):
            return ReasoningDelta(choice, before + after)
        case ToolArgsDelta(choice, index, before), ToolArgsDelta(_, same, after) if index == same:
            return ToolArgsDelta(choice, index, before + after)
        case ToolInputDelta(choice, index, before), ToolInputDelta(_, same, after) if index == same:
            return ToolInputDelta(choice, index, before + after)
        case _:
            return None
