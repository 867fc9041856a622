"""Usage for tests: complete admissions and settlements, a store in memory, killed ledgers."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from django.db import OperationalError

from vinery_accounts.usage.entries import Admission, Outcome, Settlement
from vinery_accounts.usage.ledger import UsageLedger
from vinery_accounts.usage.recovery import recover_orphans
from vinery_accounts.usage.store import store_settlements

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def admission(request_id: str = "r1", **changes: Any) -> Admission:
    caller = {"user_id": 7, "username": "alice", "key_id": None, "key_name": "laptop"}
    asked = {"model": "reference-chat", "endpoint": "chat/completions", "dialect": "v1"}
    at = {"request_id": request_id, "is_streamed": True, "started_at": NOON}
    return Admission(**{**caller, **asked, **at, **changes})


_IDENTITY = frozenset(Admission.__struct_fields__)


def settlement(request_id: str = "r1", **changes: Any) -> Settlement:
    """The changes may also be changes of the admission."""
    identity = {name: changes.pop(name) for name in _IDENTITY & changes.keys()}
    ended = {"admission": admission(request_id, **identity), "outcome": Outcome.OK}
    of_input = {"num_prompt_tokens": 11, "num_cached_tokens": 8}
    of_output = {"num_output_tokens": 30, "num_reasoning_tokens": 20}
    times = {"queue_ms": 0.5, "first_token_ms": 12.25, "total_ms": 340.0}
    usual = {"http_status": 200, **of_input, **of_output, **times}
    return Settlement(**{**ended, **usual, **changes})


def store(*request_ids: str, **changes: Any) -> None:
    """Store a usage record for each of these requests."""
    store_settlements([settlement(each, **changes) for each in request_ids])


def tokens(num_input: int, num_output: int = 0) -> dict[str, int]:
    """Changes of a settlement: it has used these tokens and no others."""
    counts = {"num_prompt_tokens": num_input, "num_output_tokens": num_output}
    return {**counts, "num_cached_tokens": 0, "num_reasoning_tokens": 0}


class DatabaseUnavailable(OperationalError):
    """An error that only a test raises, never by accident."""


class Shelf:
    """A store in memory with the database's rule: the first record of a request is kept."""

    def __init__(self) -> None:
        self.rows: dict[str, Settlement] = {}
        self.num_failures_to_come = 0

    def __call__(self, settlements: Sequence[Settlement]) -> None:
        if settlements and self.num_failures_to_come:
            self.num_failures_to_come -= 1
            raise DatabaseUnavailable
        for row in settlements:
            self.rows.setdefault(row.admission.request_id, row)

    @property
    def outcomes(self) -> dict[str, Outcome]:
        return {request_id: row.outcome for request_id, row in self.rows.items()}


def serve(ledger: UsageLedger, *request_ids: str) -> None:
    """Admit these requests one after the other, and settle each at once."""
    for each in request_ids:
        ledger.admit(admission(each))
        ledger.settle(settlement(each))


class NewLedger:
    """Makes ledgers of one folder, which store in one shelf."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.shelf = Shelf()
        self.made: list[UsageLedger] = []

    def __call__(self, **changes: Any) -> UsageLedger:
        store = changes.pop("store", self.shelf)
        self.made.append(UsageLedger(self.folder, store=store, store_dead=store, **changes))
        return self.made[-1]

    def recover(self) -> Shelf:
        """The shelf after the next process has recovered the journals of dead processes."""
        recover_orphans(self.folder, self.shelf)
        return self.shelf


def die(ledger: UsageLedger) -> None:
    """Release the journal, as the kernel does for a killed process."""
    ledger._journal.close()
