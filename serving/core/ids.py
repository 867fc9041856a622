"""Ids that clients see. Random, unguessable, and unique without coordination."""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass


def new_id_token() -> str:
    """24 hexadecimal digits from the system's random source."""
    return secrets.token_hex(12)


def derive_seed(seed: int, index: int) -> int:
    """The seed of sample `index` of a request: the request's own seed for the first.

    Samples of one request must differ, and two requests with one seed must agree.
    The multiplier is Knuth's (2^64 over the golden ratio), which spreads small indexes.
    """
    return (seed + index * 0x9E3779B97F4A7C15) % 2**63


@dataclass(frozen=True, slots=True)
class Head:
    """What an answer is known by. All ids in it are derived from `token`, which is the
    server's own and unique, and only that of the answer itself may be the client's choice,
    `requested_id`.

    `created_at` is in whole Unix seconds.
    """

    token: str
    created_at: int
    model: str
    requested_id: str | None = None

    @classmethod
    def new(cls, model: str, *, requested_id: str | None = None) -> Head:
        """The head of an answer that begins now."""
        return cls(new_id_token(), int(time.time()), model, requested_id)

    def id(self, prefix: str) -> str:
        """The id of the answer itself, such as `chatcmpl-<token>`, or as vLLM has it
        `chatcmpl-<given id>`. One that is complete as it was given stays as it is."""
        if self.requested_id is not None and self.requested_id.startswith(prefix):
            return self.requested_id
        return f"{prefix}{self.requested_id or self.token}"

    def item_id(self, prefix: str, index: int) -> str:
        """The id of part `index` of the answer, such as `msg_<token>03`."""
        return f"{prefix}{self.token}{index:02x}"


def tool_call_id(token: str, choice: int, index: int) -> str:
    """The `call_id` that a client answers a tool call with."""
    return f"call_{token[:16]}{choice:02x}{index:02x}"
