"""Chat completions: the body of a request, and the two encodings of its answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, UnsetType
from pydantic import Discriminator, Field, Tag

from vinery_serving.core import events, field_limits
from vinery_serving.core.dialects import Dialect
from vinery_serving.core.errors import MissingParameter
from vinery_serving.core.events import Token
from vinery_serving.core.memory import NO_MEMORY, Memory, MemoryItem, ToKeep
from vinery_serving.core.request import Conversation, Effort, Endpoint, Message
from vinery_serving.core.result import ChoiceResult, Result
from vinery_serving.protocols.common import chunks, encoding
from vinery_serving.protocols.common import tools as wire_tools
from vinery_serving.protocols.common.body_fields import read_body
from vinery_serving.protocols.common.formats import RESPONSE_FORMAT, ResponseFormat
from vinery_serving.protocols.common.generation import ArrivalFields, GenerationBody, TemplateFields
from vinery_serving.protocols.common.messages import AssistantMessage, WireMessage
from vinery_serving.protocols.common.reading import (
    EFFORT,
    Limited,
    PromptIds,
    TopLogprobs,
    parameter,
    refusal,
)


def _kind(value: Any) -> str:
    """FastDeploy accepts token ids as messages."""
    is_ids = isinstance(value, list) and bool(value) and type(value[0]) is int
    return "<ids>" if is_ids else "<messages>"


Messages = Annotated[list[WireMessage], Field(fail_fast=True), Limited(field_limits.MESSAGES)]
MessagesOrIds = Annotated[
    Annotated[Messages, Tag("<messages>")] | Annotated[PromptIds, Tag("<ids>")],
    Discriminator(_kind),
]


class ChatBody(TemplateFields, ArrivalFields, GenerationBody):
    """The parameters of chat completions."""

    messages: MessagesOrIds | None = parameter(
        "The conversation, or as in FastDeploy a list of token ids. With `prefix` true, as in "
        "Mistral's API, the answer continues the last message."
    )
    prompt_token_ids: PromptIds | None = parameter(
        "Token ids that replace the rendered `messages`."
    )
    echo: bool | None = parameter(
        "The answer begins with the last message, if the assistant wrote it."
    )
    tools: wire_tools.WireTools | None = parameter(wire_tools.TOOLS)
    tool_choice: wire_tools.WireToolChoice = parameter(wire_tools.TOOL_CHOICE)
    functions: wire_tools.WireFunctions | None = parameter(
        "The deprecated form of `tools`; the answer has `function_call`."
    )
    function_call: wire_tools.WireToolChoice = parameter("The deprecated form of `tool_choice`.")
    parallel_tool_calls: bool | None = parameter(wire_tools.PARALLEL_CALLS)
    response_format: ResponseFormat | None = parameter(RESPONSE_FORMAT)
    reasoning_effort: Effort | None = parameter(EFFORT)
    logprobs: bool | None = parameter(
        "Returns the log-probability of each token of the answer, from the model's own "
        "distribution; also in streams."
    )
    top_logprobs: TopLogprobs | None = parameter(
        "The number of alternatives for each token, from 0 to 20."
    )

    @property
    def num_top_logprobs(self) -> int | None:
        return self.top_logprobs or 0 if self.logprobs else None

    def refuse_contradictions(self) -> None:
        super().refuse_contradictions()
        if self.top_logprobs and not self.logprobs:
            raise refusal("top_logprobs", "needs `logprobs` to be true")

    @property
    def continues_final_message(self) -> bool:
        """Also if the last message is a `prefix`, as Mistral and DeepSeek name it."""
        last = self.messages[-1] if self.messages else None
        is_prefix = isinstance(last, AssistantMessage) and bool(last.prefix)
        return is_prefix or super().continues_final_message

    def conversation(self) -> Conversation:
        """Return the prompt. Raises `InvalidRequest` for a missing prompt, and for tools and a
        tool choice that contradict each other."""
        # The server would ignore one of two parameters with the same meaning.
        for old, new in (("functions", "tools"), ("function_call", "tool_choice")):
            if getattr(self, old) and getattr(self, new):
                raise refusal(old, f"cannot be used with `{new}`")
        tools = self.tools or self.functions or ()
        wire_tools.refuse_hosted(tools)
        functions = wire_tools.clients_tools(tools)
        messages, token_ids = self._messages_and_ids()
        return Conversation(
            messages=messages,
            tools=functions,
            tool_choice=wire_tools.resolve_choice(
                self.tool_choice or self.function_call, functions
            ),
            # An answer in the deprecated form has one call.
            parallel_tool_calls=self.parallel_tool_calls is not False and not self.functions,
            template_kwargs=self.chat_template_kwargs or {},
            rendering=self.rendering(self.reasoning_effort),
            token_ids=token_ids,
            echo=bool(self.echo),
        )

    def _messages_and_ids(self) -> tuple[tuple[Message, ...], tuple[int, ...] | None]:
        sent = self.messages or ()
        messages = tuple(
            each.to_core().within(f"messages[{at}]")
            for at, each in enumerate(sent)
            if not isinstance(each, int)
        )
        ids = tuple(each for each in sent if isinstance(each, int))
        given = tuple(self.prompt_token_ids or ids) or None
        if given is None and self.messages == []:
            raise refusal("messages", "must not be empty")
        if given is None and not messages:
            raise MissingParameter("`messages` is required.", param="messages")
        return messages, given


_FINISH_REASON = encoding.one_of("stop", "length", "tool_calls", "function_call")


class ChatLogprobs(encoding.Answer, kw_only=True):
    """The tokens of a chat's answer, or of a chunk."""

    content: list[encoding.TokenLogprob]
    refusal: None = None


class ChatMessage(encoding.Answer, kw_only=True):
    """The model's answer. Reasoning has two names, because clients read one or the other."""

    role: Literal["assistant"] = "assistant"
    content: str | None
    refusal: None = None
    reasoning_content: str | UnsetType = UNSET
    reasoning: str | UnsetType = UNSET
    tool_calls: list[chunks.FunctionToolCall | chunks.CustomToolCall] | UnsetType = UNSET
    function_call: chunks.CalledFunction | UnsetType = UNSET
    # FastDeploy's members, for requests with `return_token_ids`.
    prompt_token_ids: Sequence[int] | UnsetType = UNSET
    prompt_tokens: chunks.PromptText | UnsetType = UNSET
    completion_token_ids: Sequence[int] | UnsetType = UNSET
    completion_tokens: chunks.RawText | UnsetType = UNSET


class ChatChoice(encoding.Answer, kw_only=True):
    index: int
    message: ChatMessage
    logprobs: ChatLogprobs | None
    finish_reason: Annotated[str, _FINISH_REASON]
    stop_reason: chunks.StopReason
    token_ids: Sequence[int] | UnsetType = UNSET
    arrival_time: float | UnsetType = UNSET


class ChatCompletion(encoding.Answer, kw_only=True):
    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    system_fingerprint: str | None
    service_tier: str | UnsetType = UNSET
    metadata: dict[str, str] | UnsetType = UNSET
    choices: list[ChatChoice]
    usage: chunks.Usage
    prompt_token_ids: Sequence[int] | UnsetType = UNSET
    prompt_text: str | UnsetType = UNSET
    prompt_logprobs: encoding.PromptLogprobs | UnsetType = UNSET


class ChatDelta(encoding.Answer, kw_only=True):
    """More of an answer. The role comes in the first chunk."""

    role: Literal["assistant"] | UnsetType = UNSET
    content: (
        Annotated[str | None, Field(description="Null in the first chunk under /v3.")] | UnsetType
    ) = UNSET
    reasoning_content: str | UnsetType = UNSET
    reasoning: str | UnsetType = UNSET
    tool_calls: list[chunks.ToolCallChunk] | UnsetType = UNSET
    function_call: chunks.CalledFunctionDelta | UnsetType = UNSET
    prompt_token_ids: Sequence[int] | UnsetType = UNSET
    prompt_tokens: chunks.PromptText | UnsetType = UNSET
    completion_token_ids: Sequence[int] | UnsetType = UNSET
    completion_tokens: chunks.RawText | UnsetType = UNSET


class ChatChunkChoice(encoding.Answer, kw_only=True):
    index: int
    delta: ChatDelta
    logprobs: ChatLogprobs | None
    finish_reason: Annotated[str, _FINISH_REASON] | None
    stop_reason: chunks.StopReason | UnsetType = UNSET
    token_ids: Sequence[int] | UnsetType = UNSET
    arrival_time: float | UnsetType = UNSET


class ChatCompletionChunk(encoding.Answer, kw_only=True):
    """An event of a streamed chat. The event with the total usage has no choices."""

    id: str
    object: Literal["chat.completion.chunk"]
    created: int
    model: str
    system_fingerprint: str | None
    service_tier: str | UnsetType = UNSET
    choices: list[ChatChunkChoice]
    prompt_token_ids: Sequence[int] | UnsetType = UNSET
    prompt_text: str | UnsetType = UNSET
    usage: chunks.Usage | UnsetType | None = UNSET
    obfuscation: str | UnsetType = UNSET


def parse(
    body: bytes, dialect: Dialect, *, fingerprint: str | None = None, memory: Memory = NO_MEMORY
) -> ChatExchange:
    """Read the body of a chat completion request. Raises `InvalidRequest`."""
    wire, unused = read_body(Endpoint.CHAT, ChatBody, body)
    wire.refuse_contradictions()
    is_kept = memory.keeps and wire.store is True and wire.request_id is None
    request = wire.request(
        Endpoint.CHAT,
        wire.conversation(),
        dialect,
        unused=unused,
        grammar=wire.constraint(wire.response_format),
        shows_arrival=wire.return_arrival_time,
        is_kept=is_kept,
    )
    used = "flex" if request.handling.is_low_tier else "default"
    tier = {} if wire.service_tier is None else {"service_tier": used}
    return ChatExchange(
        request,
        wire.includes_usage,
        wire.is_obfuscated,
        head={"system_fingerprint": fingerprint, **tier},
        metadata={} if wire.metadata is None else {"metadata": wire.metadata},
        has_functions=bool(wire.functions),
        to_keep=_to_keep(body, wire.metadata or {}) if is_kept else None,
    )


def _to_keep(body: bytes, metadata: dict[str, str]) -> ToKeep:
    """Return what is stored: the messages as lists of stored messages show them, without ids."""
    sent = msgspec.json.decode(body, type=_Messages).messages or ()
    messages = (_stored_message(each) for each in sent if isinstance(each, dict))
    return ToKeep(tuple(messages), metadata=metadata, is_chat=True)


class _Messages(msgspec.Struct):
    messages: list[Any] | None = None  # a prompt may be token ids


def _stored_message(sent: dict[str, Any]) -> MemoryItem:
    content = sent.get("content")
    is_text = content is None or isinstance(content, str)
    parts = {"content": content if is_text else None, "content_parts": None if is_text else content}
    own = {name: value for name, value in sent.items() if name != "id"}
    return MemoryItem("", str(sent.get("role")), encoding.json_bytes({**own, **parts}))


@dataclass(frozen=True, slots=True)
class ChatExchange(chunks.ChunkExchange):
    """A chat completion request. Its answer has role, id, type and name once."""

    id_prefix = "chatcmpl-"
    kind = "chat.completion"
    chunk_kind = "chat.completion.chunk"
    open = b'"delta":{'
    close = b"}"
    text_open = b'"content":'

    # Whether the answer's first call is its `function_call`, for requests with the deprecated
    # `functions`. That call has no id. The form has no further calls and no custom tools.
    has_functions: bool = False

    def choice(self, choice: ChoiceResult, result: Result) -> ChatChoice:
        calls, reasoning = choice.tool_calls, choice.reasoning or UNSET
        tokens: chunks.Members = {}
        if self.request.wants_token_ids:
            tokens = {
                **encoding.prompt_tokens(result.prompt_ids[0], result.prompt_texts[0]),
                **encoding.completion_tokens(choice.token_ids, choice.raw_text),
            }
        message = ChatMessage(
            content=choice.text or (None if calls else ""),
            # A client reads one of the two names.
            reasoning_content=reasoning,
            reasoning=reasoning,
            tool_calls=UNSET if self.has_functions else chunks.called_tools(calls),
            function_call=chunks.called_function(calls[0])
            if self.has_functions and calls
            else UNSET,
            **tokens,
        )
        ids = choice.token_ids if self.request.wants_token_ids else UNSET
        return ChatChoice(message=message, token_ids=ids, **self.ended(choice, result))

    def answer(self, result: Result, **members: Any) -> ChatCompletion:
        if self.request.logprobs.num_top_of_prompt is not None:
            members["prompt_logprobs"] = encoding.prompt_logprobs(result.scored_prompts[0])
        return ChatCompletion(**members, **self._prompt(result))

    def finish_reason(self, reason: events.FinishReason) -> str:
        is_call = self.has_functions and reason is events.FinishReason.TOOL_CALLS
        return "function_call" if is_call else reason.value

    def logprobs(
        self, source: events.Started | Result, choice: int, *, is_streamed: bool
    ) -> Callable[[Sequence[Token]], object]:
        def logprobs(tokens: Sequence[Token]) -> object:
            if is_streamed and not tokens:
                return None
            return ChatLogprobs(content=encoding.content_logprobs(tokens))

        return logprobs

    def start(self, event: events.Started, choice: int) -> chunks.Chunk:
        """Every choice has a first chunk. Clients expect the choices in order."""
        tokens: chunks.Members = {}
        if self.request.wants_token_ids:
            tokens = encoding.prompt_tokens(event.prompt_ids[0], event.prompt_texts[0])
        content = None if self.request.dialect.shows_first_token else ""
        delta = ChatDelta(role="assistant", content=content, **tokens)
        return chunks.Chunk(encoding.json_members(delta), chunk_extras=self._prompt(event))

    def delta(self, event: chunks.OtherDelta) -> bytes:
        match event:
            case events.ReasoningDelta():
                text = encoding.json_text(event.text)
                return b'"reasoning_content":' + text + b',"reasoning":' + text
            case _ if not self.has_functions:
                return chunks.call_delta(event)
            case events.ToolCallStarted(index=0):
                called = chunks.CalledFunctionDelta(name=event.name, arguments="")
                return b'"function_call":%b' % encoding.json_bytes(called)
            case events.ToolCallDelta(index=0, is_custom=False):
                return b'"function_call":{"arguments":%b}' % encoding.json_text(event.text)
        return b""

    def tokens(self, event: events.TokensGenerated) -> chunks.Chunk:
        delta = ChatDelta(**encoding.completion_tokens(event.token_ids, event.text))
        return chunks.Chunk(encoding.json_members(delta), {"token_ids": event.token_ids})

    def _prompt(self, source: events.Started | Result) -> chunks.Members:
        members: dict[str, Any] = {}
        if self.request.wants_token_ids:
            members["prompt_token_ids"] = source.prompt_ids[0]
        if self.request.wants_prompt_text:
            members["prompt_text"] = source.prompt_texts[0]
        return members
