"""Chat completions: body to request, events to chunks, result to answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, assert_never

from pydantic import Discriminator, Field, Tag

from serving.core.errors import InvalidRequest, MissingParameter
from serving.core.events import (
    Completed,
    Event,
    Failed,
    Finished,
    Progress,
    PromptScored,
    ReasoningDelta,
    Started,
    TextDelta,
    TokensGenerated,
    ToolArgsDelta,
    ToolCallStarted,
    ToolInputDelta,
)
from serving.core.ids import AnswerIdentity
from serving.core.logprobs import Token
from serving.core.request import Conversation, Dialect, Endpoint, GenerationRequest, Message
from serving.core.result import ChoiceResult, Result
from serving.protocols import token_ids as token_members
from serving.protocols.base import Encoder
from serving.protocols.call_forms import FUNCTION_CALL, TOOL_CALLS, CallForm
from serving.protocols.chunks import ChunkFrames, usage_object
from serving.protocols.constraints import ResponseFormat
from serving.protocols.fields import Effort, TokenIds
from serving.protocols.generation import GenerationBody
from serving.protocols.logprobs import content_logprobs, prompt_logprobs
from serving.protocols.messages import Content, WireMessage
from serving.protocols.obfuscation import obfuscated
from serving.protocols.prompting import PromptFields
from serving.protocols.reading import Wire
from serving.protocols.refused import read_body
from serving.protocols.sse import json_bytes, json_text
from serving.protocols.steering import TopLogprobs
from serving.protocols.tools import (
    WireFunction,
    WireToolChoice,
    WireTools,
    clients_tools,
    refuse_hosted,
    settled_choice,
)


class Prediction(Wire):
    """`prediction`: what the answer may look like. A hint for speed, which this engine does
    not need; the answer is the same with and without."""

    type: Literal["content"]
    content: Content


def _kind(value: Any) -> str:
    """FastDeploy takes token ids in place of messages."""
    is_ids = isinstance(value, list) and bool(value) and type(value[0]) is int
    return "<ids>" if is_ids else "<messages>"


Messages = Annotated[list[WireMessage], Field(fail_fast=True)]
MessagesOrIds = Annotated[
    Annotated[Messages, Tag("<messages>")] | Annotated[TokenIds, Tag("<ids>")],
    Discriminator(_kind),
]


class ChatBody(PromptFields, GenerationBody):
    """The body of a chat completion request."""

    messages: MessagesOrIds | None = None
    # FastDeploy's: goes before the messages, which are then not rendered.
    prompt_token_ids: TokenIds | None = None
    echo: bool | None = None
    tools: WireTools | None = None
    tool_choice: WireToolChoice = None
    functions: Annotated[list[WireFunction], Field(fail_fast=True)] | None = None
    function_call: WireToolChoice = None
    parallel_tool_calls: bool | None = None
    response_format: ResponseFormat | None = None
    reasoning_effort: Effort | None = None
    prediction: Prediction | None = None
    verbosity: Literal["low", "medium", "high"] | None = None
    logprobs: bool | None = None
    top_logprobs: TopLogprobs | None = None

    @property
    def num_top_logprobs(self) -> int | None:
        return self.top_logprobs or 0 if self.logprobs else None

    def refuse_contradictions(self) -> None:
        super().refuse_contradictions()
        if self.top_logprobs and not self.logprobs:
            raise InvalidRequest(
                "`top_logprobs` needs `logprobs` to be true.", param="top_logprobs"
            )

    def conversation(self) -> Conversation:
        """The prompt. Raises `InvalidRequest` when there is none, and for tools that do not
        fit together."""
        tools = self.tools or self.functions or ()
        self._refuse_mixture()
        refuse_hosted(tools)
        functions = clients_tools(tools)
        messages, token_ids = self._turns_and_ids()
        return Conversation(
            messages=messages,
            tools=functions,
            tool_choice=settled_choice(self.tool_choice or self.function_call, functions),
            # The deprecated form has room for one call.
            parallel_tool_calls=self.parallel_tool_calls is not False and not self.functions,
            template_kwargs=self.template_kwargs,
            rendering=self.rendering(self.reasoning_effort),
            token_ids=token_ids,
            echo=bool(self.echo),
        )

    def _turns_and_ids(self) -> tuple[tuple[Message, ...], tuple[int, ...] | None]:
        turns: list[Message] = []
        ids: list[int] = []
        for each in self.messages or ():
            if isinstance(each, int):
                ids.append(each)
            else:
                turns.append(each.to_core())
        given = tuple(self.prompt_token_ids or ids) or None
        if given is None and self.messages == []:
            raise InvalidRequest("`messages` must not be empty.", param="messages")
        if given is None and not turns:
            raise MissingParameter("`messages` is required.", param="messages")
        return tuple(turns), given

    def _refuse_mixture(self) -> None:
        """Of two ways to say the same, one would go unheard."""
        for old, new in (("functions", "tools"), ("function_call", "tool_choice")):
            if getattr(self, old) and getattr(self, new):
                raise InvalidRequest(f"`{old}` cannot be used with `{new}`.", param=old)


def parse(body: bytes, dialect: Dialect, *, fingerprint: str | None = None) -> ChatExchange:
    """Read a chat completion request. Raises `InvalidRequest`."""
    wire = read_body(Endpoint.CHAT, ChatBody, body)
    wire.refuse_contradictions()
    request = wire.request(
        Endpoint.CHAT, wire.conversation(), dialect, grammar=wire.constraint(wire.response_format)
    )
    return ChatExchange(
        request,
        wire.includes_usage,
        wire.service_tier is not None,
        fingerprint,
        is_obfuscated=wire.is_obfuscated,
        metadata=wire.metadata,
        calls=FUNCTION_CALL if wire.functions else TOOL_CALLS,
    )


@dataclass(frozen=True, slots=True)
class ChatExchange:
    """A chat request, and how to answer it."""

    request: GenerationRequest
    includes_usage: bool = False
    echoes_tier: bool = False
    fingerprint: str | None = None
    is_obfuscated: bool = False
    metadata: Mapping[str, str] | None = None
    calls: CallForm = TOOL_CALLS

    def encoder(self, head: AnswerIdentity) -> Encoder:
        members = self._members(head, "chat.completion.chunk")
        frames = ChunkFrames(members, includes_usage=self.includes_usage)
        encoder = ChatEncoder(frames, self.request, self.calls)
        return obfuscated(encoder, head, is_wanted=self.is_obfuscated)

    def body(self, head: AnswerIdentity, result: Result) -> bytes:
        choices = [_choice(self.request, choice, result, self.calls) for choice in result.choices]
        usage = usage_object(result.usage)
        members = self._members(head, "chat.completion")
        # Whole answers have a place for it, chunks have none.
        metadata = {} if self.metadata is None else {"metadata": self.metadata}
        beside = _of_prompt(self.request, result)
        return json_bytes({**members, **metadata, "choices": choices, "usage": usage, **beside})

    def _members(self, head: AnswerIdentity, kind: str) -> dict[str, object]:
        # There is one tier, so whichever was asked for, the default served.
        tier = {"service_tier": "default"} if self.echoes_tier else {}
        return {
            "id": head.id("chatcmpl-"),
            "object": kind,
            "created": head.created_at,
            "model": head.model,
            "system_fingerprint": self.fingerprint,
            **tier,
        }


def _choice(
    request: GenerationRequest, choice: ChoiceResult, result: Result, form: CallForm
) -> dict[str, object]:
    tells = request.logprobs.num_top is not None
    message, token_ids = _message(choice, form), {}
    if request.wants_token_ids:
        message |= token_members.of_prompt(result.prompt_ids[0], result.prompt_texts[0])
        message |= token_members.of_answer(choice.token_ids, choice.raw_text)
        token_ids = {"token_ids": list(choice.token_ids)}
    return {
        "index": choice.index,
        "message": message,
        "logprobs": _logprobs(choice.tokens) if tells else None,
        "finish_reason": form.reason(choice.finish_reason),
        "stop_reason": choice.cause,
        **token_ids,
    }


def _logprobs(tokens: Sequence[Token]) -> dict[str, object]:
    return {"content": content_logprobs(tokens), "refusal": None}


def _first_prompt(
    request: GenerationRequest, ids: Sequence[Sequence[int]], texts: Sequence[str]
) -> dict[str, object]:
    """Of the only prompt there is, what was asked for."""
    members: dict[str, object] = {}
    if request.wants_token_ids:
        members["prompt_token_ids"] = list(ids[0])
    if request.wants_prompt_text:
        members["prompt_text"] = texts[0]
    return members


def _of_prompt(request: GenerationRequest, result: Result) -> dict[str, object]:
    """What is told of the prompt, to those who ask."""
    members = _first_prompt(request, result.prompt_ids, result.prompt_texts)
    if request.logprobs.num_top_of_prompt is not None:
        members["prompt_logprobs"] = prompt_logprobs(result.scored_prompts[0])
    return members


def _message(choice: ChoiceResult, form: CallForm) -> dict[str, object]:
    calls = choice.tool_calls
    message: dict[str, object] = {
        "role": "assistant",
        "content": choice.text or (None if calls else ""),
        "refusal": None,
    }
    if choice.reasoning:
        # Clients read one name or the other.
        message |= {"reasoning_content": choice.reasoning, "reasoning": choice.reasoning}
    return message | form.member(calls) if calls else message


class ChatEncoder:
    """Events to chunks.

    Clients join the strings of all deltas, so role, id, type and name are sent once.
    """

    def __init__(self, frames: ChunkFrames, request: GenerationRequest, calls: CallForm) -> None:
        choices = range(request.num_choices)
        self._frames = frames
        self._request = request
        self._calls = calls
        self._opens = [frames.open_choice(at) + b'"delta":{' for at in choices]
        self._text_opens = [start + b'"content":' for start in self._opens]

    def feed(self, event: Event) -> bytes:
        match event:
            case TextDelta(tokens=()):
                text = json_text(event.text)
                return self._text_opens[event.choice] + text + _NO_FINISH + self._frames.close
            case TextDelta():
                return self._text_and_tokens(event)
            case ReasoningDelta():
                return self._delta(event.choice, _reasoning(json_text(event.text)))
            case ToolArgsDelta():
                return self._delta(event.choice, self._calls.arguments(event))
            case ToolInputDelta():
                return self._delta(event.choice, self._calls.input(event))
            case ToolCallStarted():
                return self._delta(event.choice, self._calls.start(event))
            case Started():
                return self._start(event)
            case TokensGenerated():
                told = token_members.of_answer(event.token_ids, event.text)
                ids = json_bytes(list(event.token_ids))
                return self._delta(event.choice, json_bytes(told)[1:-1], b',"token_ids":' + ids)
            case PromptScored():
                return b""  # told in whole answers only
            case Finished():
                reason = self._calls.reason(event.reason).encode()
                finish = b'},"logprobs":null,"finish_reason":"%b","stop_reason":%b' % (
                    reason,
                    json_bytes(event.cause),
                )
                return self._opens[event.choice] + finish + self._frames.close
            case Progress():
                self._frames.note(event.usage)
                return b""
            case Completed():
                return self._frames.end(event.usage)
            case Failed():
                return self._frames.fail(event.error)
            case _:
                assert_never(event)

    def _start(self, event: Started) -> bytes:
        """A chunk for each choice: clients want to meet them in the order of their indexes."""
        first, close = _FIRST, self._frames.close
        of_prompt = _first_prompt(self._request, event.prompt_ids, event.prompt_texts)
        if of_prompt:
            close = self._frames.closing(**of_prompt)
        if self._request.wants_token_ids:
            told = token_members.of_prompt(event.prompt_ids[0], event.prompt_texts[0])
            first += b"," + json_bytes(told)[1:-1]
        return b"".join(start + first + _NO_FINISH + close for start in self._opens)

    def _delta(self, choice: int, members: bytes, beside: bytes = b"") -> bytes:
        if not members and not beside:
            return b""
        return self._opens[choice] + members + _NO_FINISH + beside + self._frames.close

    def _text_and_tokens(self, event: TextDelta) -> bytes:
        finish = b'},"logprobs":%b,"finish_reason":null' % json_bytes(_logprobs(event.tokens))
        text = json_text(event.text)
        return self._text_opens[event.choice] + text + finish + self._frames.close


_FIRST = b'"role":"assistant","content":""'
_NO_FINISH = b'},"logprobs":null,"finish_reason":null'


def _reasoning(text: bytes) -> bytes:
    return b'"reasoning_content":%b,"reasoning":%b' % (text, text)
