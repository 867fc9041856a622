"""The response object and its output items, in each of their states."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, Self, assert_never

from vinery_serving.core.dialects import Dialect
from vinery_serving.core.errors import ServingError
from vinery_serving.core.events import QUOTA, FinishReason, TokenCounts
from vinery_serving.core.ids import AnswerIdentity
from vinery_serving.core.logprobs import Token
from vinery_serving.core.request import Sampling, Tool, ToolCall
from vinery_serving.core.result import ChoiceResult, ReasoningItem, TextItem
from vinery_serving.core.result import Item as CoreItem
from vinery_serving.protocols.common.chunks import media_details, output_details
from vinery_serving.protocols.common.logprobs import content_logprobs
from vinery_serving.protocols.common.messages import pack_reasoning

Item = dict[str, object]
# The members that name the tool of a call, by the name that the model uses.
Names = Mapping[str, Mapping[str, str]]
Cause = str | int | None  # see `core.events.Finished`
_REPEATED: Final = ("temperature", "top_p", "presence_penalty", "frequency_penalty")
_DEFAULTS: Final = Sampling(1.0, 1.0, presence_penalty=0.0, frequency_penalty=0.0)

IN_PROGRESS = "in_progress"
COMPLETED = "completed"
INCOMPLETE = "incomplete"


def names_of(tools: Iterable[Tool]) -> Names:
    """Return the client's names of the tools in namespaces. Other tools have one name."""
    return {
        tool.name: {"name": tool.own_name, "namespace": tool.namespace}
        for tool in tools
        if tool.own_name is not None and tool.namespace is not None
    }


@dataclass(frozen=True, slots=True)
class ResponseObjects:
    """Builds the objects of one response. Every state of the response has all members.

    `echo` holds the members that repeat the request. `packs_reasoning` adds `encrypted_content`.
    """

    identity: AnswerIdentity
    echo: Mapping[str, object]
    names: Names
    dialect: Dialect
    packs_reasoning: bool = False

    def with_sampling(self, sampling: Sampling | None) -> Self:
        """Return the objects with the values in force of what the request leaves to the model;
        None: with OpenAI's defaults."""
        in_force = sampling or _DEFAULTS
        missing = [name for name in _REPEATED if self.echo.get(name) is None]
        values = {name: getattr(in_force, name) for name in missing}
        return replace(self, echo={**self.echo, **values})

    def started(self) -> Item:
        """Return a response without output."""
        return self._response(IN_PROGRESS, ())

    def finished(
        self,
        items: Sequence[Item],
        usage: TokenCounts,
        completed_at: int,
        *,
        cuts: Collection[Cause],
    ) -> Item:
        """Return a completed response, or an incomplete one if choices reached a limit.

        `cuts` holds the causes of these choices. As in chats, the `stop_reason` is that of a
        quota.
        """
        counts = {
            "input_tokens": usage.num_prompt_tokens,
            "input_tokens_details": {
                "cached_tokens": usage.num_cached_tokens,
                "cache_write_tokens": 0,
                **media_details(usage),
            },
            "output_tokens": usage.num_output_tokens,
            "output_tokens_details": output_details(usage),
            "total_tokens": usage.num_tokens,
        }
        if not cuts:
            return self._response(COMPLETED, items, usage=counts, completed_at=completed_at)
        details = {"reason": self.dialect.length_reason}
        if QUOTA in cuts:
            details["stop_reason"] = QUOTA
        return self._response(INCOMPLETE, items, usage=counts, incomplete_details=details)

    def failed(self, items: Sequence[Item], error: ServingError) -> Item:
        """Return a response that ended with an error, with the items before it."""
        details = {"code": _error_code(error), "message": error.message}
        return self._response("failed", items, error=details)

    def _response(self, status: str, items: Sequence[Item], **members: object) -> Item:
        """Return the response. `members` replace the nulls."""
        return {
            "id": self.identity.id("resp_"),
            "object": "response",
            "created_at": self.identity.created_at,
            "status": status,
            "completed_at": None,
            "error": None,
            "incomplete_details": None,
            "model": self.identity.model,
            "output": items,
            "usage": None,
            **self.echo,
            **members,
        }

    def items(self, choices: Iterable[ChoiceResult]) -> Sequence[Item]:
        """Return the items of a finished answer, choice after choice. The last item of a choice
        that reached its limit is incomplete."""
        items: list[Item] = []
        for choice in choices:
            items += [self.item(len(items) + at, each) for at, each in enumerate(choice.items)]
            if choice.items and choice.finish_reason is FinishReason.LENGTH:
                items[-1]["status"] = INCOMPLETE
        return items

    def item(
        self, index: int, item: CoreItem, status: str = COMPLETED, *, is_empty: bool = False
    ) -> Item:
        """Return item `index` of the response. An empty item has no content parts yet."""
        match item:
            case TextItem(text=text, tokens=tokens):
                content = () if is_empty else (text_part(text, tokens),)
                head = self._head("msg_", index, "message", status)
                return {**head, "role": "assistant", "content": content}
            case ReasoningItem(text=text):
                # Some clients read the summary, others the content, so both have the text.
                texts = () if is_empty else (text,)
                is_packed = self.packs_reasoning and not is_empty
                return {
                    **self._head("rs_", index, "reasoning", status),
                    "summary": [reasoning_part("summary_text", each) for each in texts],
                    "content": [reasoning_part("reasoning_text", each) for each in texts],
                    "encrypted_content": pack_reasoning(text) if is_packed else None,
                }
            case ToolCall(id=call_id, name=name, arguments=text, is_custom=is_custom):
                kind = ("ctc_", "custom_tool_call") if is_custom else ("fc_", "function_call")
                head = {**self._head(kind[0], index, kind[1], status), "call_id": call_id}
                return {**head, **self.name(name), "input" if is_custom else "arguments": text}
            case _:
                assert_never(item)

    def name(self, name: str) -> Mapping[str, str]:
        """Return the members of a call that name its tool."""
        return self.names.get(name) or {"name": name}

    def _head(self, prefix: str, index: int, kind: str, status: str) -> Item:
        return {"id": self.identity.item_id(prefix, index), "type": kind, "status": status}


def text_part(text: str, tokens: Sequence[Token] = ()) -> Item:
    """Return the part of a message."""
    logprobs = content_logprobs(tokens)
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": logprobs}


def reasoning_part(kind: Literal["summary_text", "reasoning_text"], text: str) -> Item:
    """Return the part of a summary, or of the content of reasoning."""
    return {"type": kind, "text": text}


def _error_code(error: ServingError) -> str:
    """Return the nearest of the codes that strict clients accept."""
    if error.status == 429:
        return "rate_limit_exceeded"
    return "invalid_prompt" if error.status < 500 else "server_error"
