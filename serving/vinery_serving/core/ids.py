"""Ids that clients see. They are random and unique without coordination."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass


def new_id_token() -> str:
    """Return 32 hexadecimal digits from the system's random source."""
    return os.urandom(16).hex()


def derive_seed(seed: int, index: int) -> int:
    """Return the seed of sample `index` of a request. Sample 0 has the request's own seed. The
    samples of one request differ, and two requests with the same seed get the same samples. The
    multiplier is Knuth's (2^64 over the golden ratio); it spreads small indexes."""
    return (seed + index * 0x9E3779B97F4A7C15) % 2**63


@dataclass(frozen=True, slots=True)
class AnswerIdentity:
    token: str  # the server's own and unique: all ids derive from it
    created_at: int  # whole Unix seconds
    model: str
    # Replaces `token` in the id of the answer only, if the client chose one (vLLM's `request_id`).
    requested_id: str | None = None

    @classmethod
    def new(cls, model: str, *, requested_id: str | None = None) -> AnswerIdentity:
        return cls(new_id_token(), int(time.time()), model, requested_id)

    def id(self, prefix: str) -> str:
        """Return `chatcmpl-<token>`, or vLLM's `chatcmpl-<requested id>` with one prefix."""
        if self.requested_id is not None and self.requested_id.startswith(prefix):
            return self.requested_id
        return f"{prefix}{self.requested_id or self.token}"

    def item_id(self, prefix: str, index: int) -> str:
        """Return the id of item `index` of the answer, such as `msg_<token>03`."""
        return f"{prefix}{self.token}{index:02x}"


def tool_call_id(token: str, choice: int, index: int) -> str:
    """Return the `call_id` that the client sends back with the tool's output."""
    return f"call_{token[:16]}{choice:02x}{index:02x}"
