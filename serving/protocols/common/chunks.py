"""The chunks of chats and completions: their constant members, usage, and last frames.

The constant parts are encoded once, so that a delta costs one join.
"""

from __future__ import annotations

from typing import assert_never

from serving.core.events import Completed, Failed, Progress, Usage
from serving.core.ids import AnswerIdentity
from serving.protocols.common.encoding import DONE, error_body, frame, json_bytes


def head_members(
    identity: AnswerIdentity, prefix: str, kind: str, fingerprint: str | None
) -> dict[str, object]:
    """Return the members before `choices`. `prefix` is that of the id, `kind` the `object`."""
    return {
        "id": identity.id(prefix),
        "object": kind,
        "created": identity.created_at,
        "model": identity.model,
        "system_fingerprint": fingerprint,
    }


def usage_object(usage: Usage) -> dict[str, object]:
    """Return OpenAI's `usage` of chats and completions."""
    return {
        "prompt_tokens": usage.num_prompt_tokens,
        "completion_tokens": usage.num_output_tokens,
        "total_tokens": usage.num_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.num_cached_tokens},
        "completion_tokens_details": {
            "reasoning_tokens": usage.num_reasoning_tokens,
            **prediction_details(usage),
        },
    }


def prediction_details(usage: Usage) -> dict[str, int]:
    """Return OpenAI's counts of predicted tokens, or {} without speculative decoding."""
    if not usage.num_proposed_tokens:
        return {}
    return {
        "accepted_prediction_tokens": usage.num_accepted_tokens,
        "rejected_prediction_tokens": usage.num_proposed_tokens - usage.num_accepted_tokens,
    }


class ChunkFrames:
    """Encodes the chunks of one stream. `members` are the members of every chunk before
    `choices`."""

    def __init__(self, members: dict[str, object], *, includes_usage: bool) -> None:
        self._open = b"data: " + json_bytes(members)[:-1] + b',"choices":['
        self._includes_usage = includes_usage
        # The end of a choice and of its chunk. OpenAI's `usage` is null before the last chunk.
        self.close = self._closing(b"null")

    def open_choice(self, index: int) -> bytes:
        """Return the start of a chunk of choice `index`, with the comma before its members."""
        return self._open + b'{"index":%d,' % index

    def closing(self, **members: object) -> bytes:
        """Return `close` with more members of the chunk."""
        return b"}]," + json_bytes(members)[1:-1] + self.close[2:]

    def feed(self, event: Progress | Completed | Failed) -> bytes:
        """Encode the usage so far, or the last frames of the stream."""
        match event:
            case Progress():
                self.close = self._closing(json_bytes(usage_object(event.usage)))
                return b""
            case Completed() if self._includes_usage:
                usage = json_bytes(usage_object(event.usage))
                return self._open + b'],"usage":' + usage + b"}\n\n" + DONE
            case Completed():
                return DONE
            case Failed():
                return frame(error_body(event.error)) + DONE
            case _:
                assert_never(event)

    def _closing(self, usage: bytes) -> bytes:
        return b'}],"usage":' + usage + b"}\n\n" if self._includes_usage else b"}]}\n\n"
