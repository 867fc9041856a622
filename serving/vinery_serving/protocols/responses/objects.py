"""The response object and the output items, in each state."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Final, Literal, Self, assert_never

from msgspec import UNSET, UnsetType
from pydantic import Field

from vinery_serving.core.dialects import Dialect
from vinery_serving.core.errors import ServingError
from vinery_serving.core.events import QUOTA, FinishReason, Token, TokenCounts
from vinery_serving.core.ids import AnswerIdentity
from vinery_serving.core.request import Sampling, Tool, ToolCall
from vinery_serving.core.result import ChoiceResult, ReasoningItem, TextItem
from vinery_serving.core.result import Item as CoreItem
from vinery_serving.protocols.common.chunks import OutputDetails, output_details
from vinery_serving.protocols.common.encoding import Answer, TokenLogprob, content_logprobs, one_of
from vinery_serving.protocols.common.messages import pack_reasoning

Members = Mapping[str, Any]
# The members that name the tool of a call, by the name that the model uses.
Names = Mapping[str, Mapping[str, str]]
Cause = str | int | None  # see `core.events.Finished`
_REPEATED: Final = ("temperature", "top_p", "presence_penalty", "frequency_penalty")
_DEFAULTS: Final = Sampling(1.0, 1.0, presence_penalty=0.0, frequency_penalty=0.0)
QUEUED = "queued"
IN_PROGRESS = "in_progress"
COMPLETED = "completed"
INCOMPLETE = "incomplete"

_EVENTS: Final = one_of(
    "response.created", "response.queued", "response.in_progress", "response.output_item.added",
    "response.output_item.done", "response.content_part.added", "response.content_part.done",
    "response.output_text.delta", "response.output_text.done",
    "response.reasoning_summary_part.added", "response.reasoning_summary_part.done",
    "response.reasoning_summary_text.delta", "response.reasoning_summary_text.done",
    "response.reasoning_text.done", "response.function_call_arguments.delta",
    "response.function_call_arguments.done", "response.custom_tool_call_input.delta",
    "response.custom_tool_call_input.done", "response.completed", "response.incomplete",
    "response.failed", "error", "response.compaction.compacting",
)  # fmt: skip
_STATUS: Final = one_of(IN_PROGRESS, COMPLETED, INCOMPLETE)


class OutputText(Answer, kw_only=True):
    type: Literal["output_text"] = "output_text"
    text: str
    annotations: tuple[Any, ...] = ()
    logprobs: list[TokenLogprob]


class SummaryText(Answer, kw_only=True):
    """The whole reasoning."""

    type: Literal["summary_text"] = "summary_text"
    text: str


class ThoughtText(Answer, kw_only=True):
    """The whole reasoning."""

    type: Literal["reasoning_text"] = "reasoning_text"
    text: str


class OutputMessage(Answer, kw_only=True):
    id: str
    type: Literal["message"] = "message"
    status: Annotated[str, _STATUS]
    role: Literal["assistant"] = "assistant"
    content: list[OutputText]


class OutputReasoning(Answer, kw_only=True):
    """Reasoning of the model. `summary` and `content` have the same text: clients read one or
    the other."""

    id: str
    type: Literal["reasoning"] = "reasoning"
    status: Annotated[str, _STATUS]
    summary: list[SummaryText]
    content: list[ThoughtText]
    encrypted_content: str | None


class OutputCall(Answer, kw_only=True):
    id: str
    type: Literal["function_call"] = "function_call"
    status: Annotated[str, _STATUS]
    call_id: str
    name: str
    namespace: str | UnsetType = UNSET
    arguments: str


class OutputCustomCall(Answer, kw_only=True):
    id: str
    type: Literal["custom_tool_call"] = "custom_tool_call"
    status: Annotated[str, _STATUS]
    call_id: str
    name: str
    namespace: str | UnsetType = UNSET
    input: str


class OutputCompaction(Answer, kw_only=True):
    """What replaces all items before. Only this server reads the content, for the same project."""

    id: str
    type: Literal["compaction"] = "compaction"
    encrypted_content: str


AnswerItem = OutputMessage | OutputReasoning | OutputCall | OutputCustomCall
Item = AnswerItem | OutputCompaction


class InputDetails(Answer, kw_only=True):
    """Tokens of the prompt: from the prefix cache, and of pictures and videos, if there are any."""

    cached_tokens: int
    cache_write_tokens: int = 0
    image_tokens: int | UnsetType = UNSET
    video_tokens: int | UnsetType = UNSET


class ResponseUsage(Answer, kw_only=True):
    input_tokens: int
    input_tokens_details: InputDetails
    output_tokens: int
    output_tokens_details: OutputDetails
    total_tokens: int


class ResponseError(Answer, kw_only=True):
    code: Annotated[str, one_of("rate_limit_exceeded", "invalid_prompt", "server_error")]
    message: str


class IncompleteDetails(Answer, kw_only=True):
    """`max_output_tokens` on /v1, `max_tokens` on /v3."""

    reason: Annotated[str, one_of("max_output_tokens", "max_tokens")]
    stop_reason: (
        Annotated[
            str,
            one_of(QUOTA),
            Field(description="A quota of the client was used up before that limit."),
        ]
        | UnsetType
    ) = UNSET


class Response(Answer, kw_only=True):
    """A response in any state. Members that repeat the request have OpenAI's defaults."""

    id: str
    object: Literal["response"] = "response"
    created_at: int
    status: Annotated[
        str, one_of(QUEUED, IN_PROGRESS, COMPLETED, INCOMPLETE, "failed", "cancelled")
    ]
    completed_at: int | None = None
    error: ResponseError | None = None
    incomplete_details: IncompleteDetails | None = None
    model: str
    output: Sequence[Item]
    usage: ResponseUsage | None = None
    instructions: str | None
    max_output_tokens: int | None
    max_tool_calls: int | None
    previous_response_id: str | None
    conversation: dict[str, str] | UnsetType = UNSET
    tools: list[dict[str, Any]]
    tool_choice: Literal["none", "auto", "required"] | dict[str, Any]
    parallel_tool_calls: bool
    reasoning: dict[str, Any]
    text: dict[str, Any]
    temperature: float
    top_p: float
    presence_penalty: float
    frequency_penalty: float
    top_logprobs: int
    truncation: Literal["auto", "disabled"]
    service_tier: str
    store: bool
    background: bool
    metadata: dict[str, str]
    user: str | None
    safety_identifier: str | None
    prompt_cache_key: str | None
    prompt_cache_retention: str | None
    prompt_cache_options: dict[str, str] | UnsetType = UNSET


class ResponseEvent(Answer, kw_only=True):
    """An event of a streamed response. The members depend on `type`."""

    type: Annotated[str, _EVENTS]
    response: Response | UnsetType = UNSET
    item_id: str | UnsetType = UNSET
    output_index: int | UnsetType = UNSET
    content_index: int | UnsetType = UNSET
    summary_index: int | UnsetType = UNSET
    call_id: str | UnsetType = UNSET
    name: str | UnsetType = UNSET
    namespace: str | UnsetType = UNSET
    item: Item | UnsetType = UNSET
    part: OutputText | SummaryText | ThoughtText | UnsetType = UNSET
    delta: str | UnsetType = UNSET
    text: str | UnsetType = UNSET
    arguments: str | UnsetType = UNSET
    input: str | UnsetType = UNSET
    logprobs: list[TokenLogprob] | UnsetType = UNSET
    code: Annotated[str | None, Field(description="Of the event `error`.")] | UnsetType = UNSET
    message: str | UnsetType = UNSET
    param: str | UnsetType | None = UNSET
    sequence_number: int = 0
    obfuscation: str | UnsetType = UNSET


class CompactedResponse(Answer, kw_only=True):
    """The messages of the user, and one compaction item: the next request begins with them."""

    id: str
    object: Literal["response.compaction"] = "response.compaction"
    created_at: int
    output: Sequence[Any]
    usage: ResponseUsage | None


class InputTokens(Answer, kw_only=True):
    object: Literal["response.input_tokens"] = "response.input_tokens"
    input_tokens: int


def names_of(tools: Iterable[Tool]) -> Names:
    """Return the client's names of the tools in namespaces. Other tools have one name."""
    return {
        tool.name: {"name": tool.own_name, "namespace": tool.namespace}
        for tool in tools
        if tool.own_name is not None and tool.namespace is not None
    }


@dataclass(frozen=True, slots=True)
class ResponseObjects:
    """Builds the objects of one response. Every state of the response has all members. `echo` holds
    the members that repeat the request. `packs_reasoning` adds `encrypted_content`."""

    identity: AnswerIdentity
    echo: Members
    names: Names
    dialect: Dialect
    packs_reasoning: bool = False

    def with_sampling(self, sampling: Sampling | None) -> Self:
        """Return the objects with the sampling values in force. None: OpenAI's defaults."""
        in_force = sampling or _DEFAULTS
        missing = [name for name in _REPEATED if self.echo.get(name) is None]
        values = {name: getattr(in_force, name) for name in missing}
        return replace(self, echo={**self.echo, **values})

    def finished(
        self,
        items: Sequence[Item],
        usage: TokenCounts,
        completed_at: int,
        *,
        cuts: Collection[Cause],
    ) -> Response:
        """Return a completed response, or an incomplete one if choices reached a limit. `cuts`
        holds the causes of these choices. As in chats, a quota sets `stop_reason`."""
        counts = ResponseUsage(
            input_tokens=usage.num_prompt_tokens,
            input_tokens_details=InputDetails(
                cached_tokens=usage.num_cached_tokens,
                image_tokens=usage.num_image_tokens or UNSET,
                video_tokens=usage.num_video_tokens or UNSET,
            ),
            output_tokens=usage.num_output_tokens,
            output_tokens_details=output_details(usage),
            total_tokens=usage.num_tokens,
        )
        if not cuts:
            return self.response(COMPLETED, items, usage=counts, completed_at=completed_at)
        details = IncompleteDetails(
            reason=self.dialect.length_reason, stop_reason=QUOTA if QUOTA in cuts else UNSET
        )
        return self.response(INCOMPLETE, items, usage=counts, incomplete_details=details)

    def failed(self, items: Sequence[Item], error: ServingError) -> Response:
        details = ResponseError(code=error_code(error), message=error.message)
        return self.response("failed", items, error=details)

    def response(self, status: str, items: Sequence[Item] = (), **members: Any) -> Response:
        """Return the response. `members` replace the nulls."""
        return Response(
            id=self.identity.id("resp_"),
            created_at=self.identity.created_at,
            status=status,
            model=self.identity.model,
            output=items,
            **self.echo,
            **members,
        )

    def items(self, choices: Iterable[ChoiceResult], compaction: str = "") -> Sequence[Item]:
        """Return the items of a finished answer: a compaction, and choice after choice. The last
        item of a choice that reached its limit is incomplete."""
        items: list[Item] = [self.compaction(compaction)] if compaction else []
        for choice in choices:
            new = [self.item(len(items) + at, each) for at, each in enumerate(choice.items)]
            if new and choice.finish_reason is FinishReason.LENGTH:
                new[-1].status = INCOMPLETE
            items += new
        return items

    def compaction(self, content: str) -> OutputCompaction:
        return OutputCompaction(id=self.identity.item_id("cmp_", 0), encrypted_content=content)

    def item(
        self, index: int, item: CoreItem, status: str = COMPLETED, *, is_empty: bool = False
    ) -> AnswerItem:
        """Return item `index` of the response. An empty item has no content parts yet."""
        id_ = self.identity.item_id
        match item:
            case TextItem(text=text, tokens=tokens):
                content = [] if is_empty else [text_part(text, tokens)]
                return OutputMessage(id=id_("msg_", index), status=status, content=content)
            case ReasoningItem(text=text):
                texts = [] if is_empty else [text]
                is_packed = self.packs_reasoning and not is_empty
                return OutputReasoning(
                    id=id_("rs_", index),
                    status=status,
                    summary=[SummaryText(text=each) for each in texts],
                    content=[ThoughtText(text=each) for each in texts],
                    encrypted_content=pack_reasoning(text) if is_packed else None,
                )
            case ToolCall(id=call_id, name=name, arguments=text):
                names = self.names.get(name) or {"name": name}
                called: Members = {"status": status, "call_id": call_id, **names}
                if item.is_custom:
                    return OutputCustomCall(id=id_("ctc_", index), input=text, **called)
                return OutputCall(id=id_("fc_", index), arguments=text, **called)
            case _:
                assert_never(item)


def text_part(text: str, tokens: Sequence[Token] = ()) -> OutputText:
    return OutputText(text=text, logprobs=content_logprobs(tokens))


def error_code(error: ServingError) -> str:
    """Return the nearest of the codes that strict clients accept."""
    if error.status == 429:
        return "rate_limit_exceeded"
    return "invalid_prompt" if error.status < 500 else "server_error"
