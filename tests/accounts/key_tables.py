"""A key table with a fake clock, and functions that query the table."""

from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from django.utils import timezone

from tests.fakes.clock import FakeClock
from vinery_accounts.base.errors import KeyRefused, Refusal
from vinery_accounts.keys.lifecycle import NewKey
from vinery_accounts.keys.table import KeyTable

MakeKey = Callable[..., NewKey]
LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)


def past_clock() -> FakeClock:
    """Return a clock that is one hour behind: all rows of a test are newer."""
    return FakeClock(timezone.now().timestamp() - 3600)


def bearer(secret: str) -> str:
    return f"Bearer {secret}"


def refusal(table: KeyTable, authorization: bytes | str | None) -> Refusal:
    with pytest.raises(KeyRefused) as refused:
        table.authenticate(authorization)
    return refused.value.reason
