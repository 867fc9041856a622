"""Usage for tests: complete admissions and settlements, a store in memory, killed ledgers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from django.db import OperationalError

from vinery_accounts.usage.entries import Admission, Outcome, Settlement
from vinery_accounts.usage.ledger import UsageLedger

NewLedger = Callable[..., UsageLedger]
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def admission(request_id: str = "r1", **changes: Any) -> Admission:
    filled = {
        "request_id": request_id,
        "user_id": 7,
        "username": "alice",
        "key_id": None,
        "key_name": "laptop",
        "model": "reference-chat",
        "endpoint": "chat/completions",
        "dialect": "v1",
        "is_streamed": True,
        "started_at": NOON,
    }
    return Admission(**{**filled, **changes})


def settlement(request_id: str = "r1", **changes: Any) -> Settlement:
    filled = {
        "admission": admission(request_id),
        "outcome": Outcome.OK,
        "http_status": 200,
        "num_prompt_tokens": 11,
        "num_cached_tokens": 8,
        "num_output_tokens": 30,
        "num_reasoning_tokens": 20,
        "queue_ms": 0.5,
        "first_token_ms": 12.25,
        "total_ms": 340.0,
    }
    return Settlement(**{**filled, **changes})


class Shelf:
    """A store in memory with the database's rule: the first record of a request is kept."""

    def __init__(self) -> None:
        self.rows: dict[str, Settlement] = {}
        self.num_failures_to_come = 0

    def __call__(self, settlements: Sequence[Settlement]) -> None:
        if settlements and self.num_failures_to_come:
            self.num_failures_to_come -= 1
            raise OperationalError("the database is unavailable")
        for row in settlements:
            self.rows.setdefault(row.admission.request_id, row)

    @property
    def outcomes(self) -> dict[str, Outcome]:
        return {request_id: row.outcome for request_id, row in self.rows.items()}


def die(ledger: UsageLedger) -> None:
    """Release the journal, as the kernel does for a killed process."""
    ledger._journal.close()
