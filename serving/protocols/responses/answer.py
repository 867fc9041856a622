"""The response object in each state of its life. Every state has every field."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from serving.core.errors import ServingError
from serving.core.events import QUOTA, Usage
from serving.core.ids import AnswerIdentity
from serving.protocols.chunks import prediction_details
from serving.protocols.responses.items import Item
from serving.protocols.responses.names import Names

ResponseObject = dict[str, object]
Cause = str | int | None  # see `core.events.Finished`


@dataclass(frozen=True, slots=True)
class Answer:
    """What is constant about a response. `length_reason` says why one is incomplete, `names`
    what its tools are called, `packs_thoughts` whether thoughts are also told as one opaque
    string."""

    head: AnswerIdentity
    echo: Mapping[str, object]
    length_reason: str
    names: Names
    packs_thoughts: bool = False

    def begun(self) -> ResponseObject:
        """Nothing generated yet."""
        return self._object("in_progress", ())

    def finished(
        self, items: Sequence[Item], usage: Usage, completed_at: int, *, cuts: Collection[Cause]
    ) -> ResponseObject:
        """All generated: whole, or some choices cut by a limit. Only the whole is completed.

        `cuts`: the causes of those that were cut. A quota is told as chats tell it.
        """
        counts = _usage_object(usage)
        if cuts:
            details = {"reason": self.length_reason}
            if QUOTA in cuts:
                details["stop_reason"] = QUOTA
            return self._object("incomplete", items, usage=counts, incomplete_details=details)
        return self._object("completed", items, usage=counts, completed_at=completed_at)

    def failed(self, items: Sequence[Item], error: ServingError) -> ResponseObject:
        """Ended by an error, with what was generated before it."""
        details = {"code": _error_code(error), "message": error.message}
        return self._object("failed", items, error=details)

    def _object(
        self,
        status: str,
        items: Sequence[Item],
        *,
        usage: object = None,
        completed_at: int | None = None,
        error: object = None,
        incomplete_details: object = None,
    ) -> ResponseObject:
        return {
            "id": self.head.id("resp_"),
            "object": "response",
            "created_at": self.head.created_at,
            "status": status,
            "completed_at": completed_at,
            "error": error,
            "incomplete_details": incomplete_details,
            "model": self.head.model,
            "output": items,
            "usage": usage,
            **self.echo,
        }


def _usage_object(usage: Usage) -> dict[str, object]:
    return {
        "input_tokens": usage.num_prompt_tokens,
        "input_tokens_details": {
            "cached_tokens": usage.num_cached_tokens,
            "cache_write_tokens": 0,
        },
        "output_tokens": usage.num_output_tokens,
        "output_tokens_details": {
            "reasoning_tokens": usage.num_reasoning_tokens,
            **prediction_details(usage),
        },
        "total_tokens": usage.num_tokens,
    }


def _error_code(error: ServingError) -> str:
    """The nearest word of the closed list that strict clients know."""
    if error.status == 429:
        return "rate_limit_exceeded"
    return "invalid_prompt" if error.status < 500 else "server_error"
