"""The choices of chats and completions: usage, tool calls and chunks.

The constant parts of a stream are encoded once, so that a delta costs one join.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, assert_never

from msgspec import UNSET, UnsetType
from pydantic import Field

from vinery_serving.core import events
from vinery_serving.core.ids import AnswerIdentity
from vinery_serving.core.memory import ToKeep
from vinery_serving.core.request import GenerationRequest, ToolCall
from vinery_serving.core.result import ChoiceResult, Result
from vinery_serving.protocols.common import encoding

OtherDelta = (
    events.ReasoningDelta | events.ToolCallStarted | events.ToolCallDelta
)  # the deltas that are not answer text
Members = Mapping[str, Any]

# What ended the answer: a stop string or token, `repetition_detected` or `quota_exceeded`; or null.
StopReason = str | int | None
# FastDeploy's members, for requests with `return_token_ids`.
PromptText = Annotated[str, Field(description="The text of the prompt's tokens.")]
RawText = Annotated[
    str, Field(description="The text of the ids, with special tokens, reasoning and tool calls.")
]


class Chunk(NamedTuple):
    """The content of a chunk's choice, and the last members of the choice and of the chunk."""

    content: bytes
    choice_extras: Members = {}
    chunk_extras: Members = {}


class PromptDetails(encoding.Answer, kw_only=True):
    """Tokens of the prompt: from the prefix cache, and of pictures and videos, if there are any."""

    cached_tokens: int
    image_tokens: int | UnsetType = UNSET
    video_tokens: int | UnsetType = UNSET


class OutputDetails(encoding.Answer, kw_only=True):
    """Tokens of the answer. Only speculative decoding has prediction tokens."""

    reasoning_tokens: int
    accepted_prediction_tokens: int | UnsetType = UNSET
    rejected_prediction_tokens: int | UnsetType = UNSET


class Usage(encoding.Answer, kw_only=True):
    """Tokens of the whole request, with all its answers."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptDetails
    completion_tokens_details: OutputDetails


def usage_object(usage: events.TokenCounts) -> Usage:
    return Usage(
        prompt_tokens=usage.num_prompt_tokens,
        completion_tokens=usage.num_output_tokens,
        total_tokens=usage.num_tokens,
        prompt_tokens_details=PromptDetails(
            cached_tokens=usage.num_cached_tokens,
            image_tokens=usage.num_image_tokens or UNSET,
            video_tokens=usage.num_video_tokens or UNSET,
        ),
        completion_tokens_details=output_details(usage),
    )


def output_details(usage: events.TokenCounts) -> OutputDetails:
    if not usage.num_proposed_tokens:
        return OutputDetails(reasoning_tokens=usage.num_reasoning_tokens)
    return OutputDetails(
        reasoning_tokens=usage.num_reasoning_tokens,
        accepted_prediction_tokens=usage.num_accepted_tokens,
        rejected_prediction_tokens=usage.num_proposed_tokens - usage.num_accepted_tokens,
    )


class CalledFunction(encoding.Answer, kw_only=True):
    name: str
    arguments: str


class CalledCustomTool(encoding.Answer, kw_only=True):
    name: str
    input: str


class FunctionToolCall(encoding.Answer, kw_only=True):
    id: str
    type: Literal["function"] = "function"
    function: CalledFunction


class CustomToolCall(encoding.Answer, kw_only=True):
    id: str
    type: Literal["custom"] = "custom"
    custom: CalledCustomTool


class CalledFunctionDelta(encoding.Answer, kw_only=True):
    """More of a call: the name first, then parts of the arguments."""

    name: str | UnsetType = UNSET
    arguments: str


class CalledCustomToolDelta(encoding.Answer, kw_only=True):
    """More of a call: the name first, then parts of the input."""

    name: str | UnsetType = UNSET
    input: str


class ToolCallChunk(encoding.Answer, kw_only=True):
    """More of a call. The first chunk has the id and the type."""

    index: int
    id: str | UnsetType = UNSET
    type: Annotated[str, encoding.one_of("function", "custom")] | UnsetType = UNSET
    function: CalledFunctionDelta | UnsetType = UNSET
    custom: CalledCustomToolDelta | UnsetType = UNSET


def called_tools(calls: Sequence[ToolCall]) -> Any:
    """Return the calls of an answer as `tool_calls`; absent for none."""
    return [_call(call) for call in calls] or UNSET


def _call(call: ToolCall) -> FunctionToolCall | CustomToolCall:
    if call.is_custom:
        custom = CalledCustomTool(name=call.name, input=call.arguments)
        return CustomToolCall(id=call.id, custom=custom)
    return FunctionToolCall(id=call.id, function=called_function(call))


def called_function(call: ToolCall) -> CalledFunction:
    return CalledFunction(name=call.name, arguments=call.arguments)


def call_delta(event: events.ToolCallStarted | events.ToolCallDelta) -> bytes:
    """Return the members of a delta: the start of a call, or more arguments or input."""
    if isinstance(event, events.ToolCallDelta):
        member = b'"custom":{"input":' if event.is_custom else b'"function":{"arguments":'
        return b'"tool_calls":[{"index":%d,%b%b}}]' % (
            event.index,
            member,
            encoding.json_text(event.text),
        )
    opened = ToolCallChunk(index=event.index, id=event.id)
    if event.is_custom:
        opened.type, opened.custom = "custom", CalledCustomToolDelta(name=event.name, input="")
    else:
        function = CalledFunctionDelta(name=event.name, arguments="")
        opened.type, opened.function = "function", function
    return b'"tool_calls":[%b]' % encoding.json_bytes(opened)


@dataclass(frozen=True, slots=True)
class ChunkExchange(ABC):
    keep_alive: ClassVar[bytes] = encoding.KEEP_ALIVE
    id_prefix: ClassVar[str]
    kind: ClassVar[str]  # the `object` of the answer
    chunk_kind: ClassVar[str]  # the `object` of a chunk
    # The bytes of a chunk's choice: around its content, before a text, and without text.
    open: ClassVar[bytes] = b""
    close: ClassVar[bytes] = b""
    text_open: ClassVar[bytes]
    no_text: ClassVar[bytes] = b""

    request: GenerationRequest
    includes_usage: bool = False
    is_obfuscated: bool = False
    head: Members = field(default_factory=dict)  # Constant members of the answer and of its chunks
    metadata: Members = field(default_factory=dict)  # Constant members that chunks do not have
    to_keep: ToKeep | None = None

    def encoder(self, identity: AnswerIdentity) -> encoding.Encoder:
        encoder = ChunkEncoder(self, self._head(identity, self.chunk_kind))
        return encoding.Obfuscated(encoder, identity) if self.is_obfuscated else encoder

    def body(self, identity: AnswerIdentity, result: Result) -> bytes:
        usage = usage_object(result.usage)
        choices = [self.choice(choice, result) for choice in result.choices]
        members = {**self._head(identity, self.kind), **self.metadata, "usage": usage}
        return encoding.json_bytes(self.answer(result, **members, choices=choices))

    def _head(self, identity: AnswerIdentity, kind: str) -> Members:
        return {
            "id": identity.id(self.id_prefix),
            "object": kind,
            "created": identity.created_at,
            "model": identity.model,
            **self.head,
        }

    def ended(self, choice: ChoiceResult, result: Result) -> Members:
        """Return the members that choices of chats and completions share."""
        elapsed_s = choice.elapsed_s
        write = self.logprobs(result, choice.index, is_streamed=False)
        return {
            "index": choice.index,
            "logprobs": None if self.request.logprobs.num_top is None else write(choice.tokens),
            "finish_reason": self.finish_reason(choice.finish_reason),
            "stop_reason": choice.cause,
            "arrival_time": UNSET if elapsed_s is None else round(elapsed_s, 6),
        }

    @abstractmethod
    def choice(self, choice: ChoiceResult, result: Result) -> encoding.Answer:
        """Return a choice of a whole answer."""

    @abstractmethod
    def answer(self, result: Result, **members: Any) -> encoding.Answer:
        """Return the whole answer. Chats and completions share `members`."""

    def finish_reason(self, reason: events.FinishReason) -> str:
        return reason.value

    @abstractmethod
    def logprobs(
        self, source: events.Started | Result, choice: int, *, is_streamed: bool
    ) -> Callable[[Sequence[events.Token]], object]:
        """Return a function that returns the `logprobs` of a choice's next tokens."""

    @abstractmethod
    def delta(self, event: OtherDelta) -> bytes:
        """Return the content of a chunk's choice, or b"" for no chunk."""

    @abstractmethod
    def start(self, event: events.Started, choice: int) -> Chunk | None:
        """Return the first chunk of a choice."""

    @abstractmethod
    def tokens(self, event: events.TokensGenerated) -> Chunk:
        """Return a chunk with token ids."""


class ChunkEncoder:
    """Encodes the events of one stream. Clients concatenate the texts of a choice's chunks."""

    def __init__(self, form: ChunkExchange, head: Members) -> None:
        choices = range(form.request.num_choices)
        self._form = form
        self._open = b"data: " + encoding.json_bytes(head)[:-1] + b',"choices":['
        self._opens = [self._open + b'{"index":%d,' % at + form.open for at in choices]
        self._text_opens = [start + form.text_open for start in self._opens]
        self._delta = form.delta
        self._has_logprobs = form.request.logprobs.num_top is not None
        # The `logprobs` function of each choice, from `Started` on.
        self._logprobs: list[Callable[[Sequence[events.Token]], object]] = []
        # The first chunks of choices that are sent with their first tokens.
        self._late: dict[int, Chunk] = {}
        # The end of an unfinished choice, with and without log-probabilities.
        self._scored = form.close + b',"logprobs":%b,"finish_reason":null'
        self._unfinished = self._scored % b"null"
        self._arrival = b""
        self._set_usage(b"null")  # OpenAI's `usage` is null before the last chunk

    def feed(self, event: events.Event) -> bytes:
        if self._late and isinstance(event, events.OfChoice):
            late = self._late.pop(event.choice, None)
            if late is not None:
                return self._chunk(event.choice, late) + self.feed(event)
        match event:
            case events.TextDelta():
                end = self._end
                if self._has_logprobs:
                    logprobs = self._logprobs[event.choice](event.tokens)
                    end = self._scored % encoding.json_bytes(logprobs) + self._close
                return self._text_opens[event.choice] + encoding.json_text(event.text) + end
            case events.ReasoningDelta() | events.ToolCallDelta() | events.ToolCallStarted():
                delta = self._delta(event)
                return self._opens[event.choice] + delta + self._end if delta else b""
            case events.Started():
                return self._start(event)
            case events.TokensGenerated():
                return self._chunk(event.choice, self._form.tokens(event))
            case events.PromptScored() | events.FirstToken() | events.Compacted():
                return b""  # only whole answers have scored prompts
            case events.Finished():
                end = b'%b%b,"logprobs":null,"finish_reason":%b,"stop_reason":%b' % (
                    self._form.no_text,
                    self._form.close,
                    encoding.json_bytes(self._form.finish_reason(event.reason)),
                    encoding.json_bytes(event.cause),
                )
                return self._opens[event.choice] + end + self._close
            case events.Arrived():
                return self._set_arrival(event.elapsed_s)
            case events.Progress():
                return self._set_usage(encoding.json_bytes(usage_object(event.usage)))
            case events.Completed() if self._form.includes_usage:
                usage = encoding.json_bytes(usage_object(event.usage))
                return self._open + b'],"usage":' + usage + b"}\n\n" + encoding.DONE
            case events.Completed():
                return encoding.DONE
            case events.Failed():
                return encoding.frame(encoding.error_body(event.error)) + encoding.DONE
            case _:
                assert_never(event)

    def _start(self, event: events.Started) -> bytes:
        form, choices = self._form, range(len(self._opens))
        self._logprobs = [form.logprobs(event, at, is_streamed=True) for at in choices]
        chunks = {at: chunk for at in choices if (chunk := form.start(event, at))}
        if form.request.dialect.shows_first_token:
            self._late = chunks
            return b""
        return b"".join([self._chunk(at, chunk) for at, chunk in chunks.items()])

    def _chunk(self, choice: int, chunk: Chunk) -> bytes:
        choice_end = self._unfinished + _after_others(chunk.choice_extras) + self._arrival + b"}]"
        chunk_end = _after_others(chunk.chunk_extras) + self._usage + b"}\n\n"
        return self._opens[choice] + chunk.content + choice_end + chunk_end

    def _set_usage(self, usage: bytes) -> bytes:
        """Set the usage so far, which is in every chunk. Returns no frame."""
        self._usage = b',"usage":' + usage if self._form.includes_usage else b""
        return self._set_end()

    def _set_arrival(self, elapsed_s: float) -> bytes:
        self._arrival = b',"arrival_time":%.6f' % elapsed_s
        return self._set_end()

    def _set_end(self) -> bytes:
        self._close = self._arrival + b"}]" + self._usage + b"}\n\n"
        self._end = self._unfinished + self._close
        return b""


def _after_others(members: Members) -> bytes:
    return b"," + encoding.json_members(members) if members else b""
