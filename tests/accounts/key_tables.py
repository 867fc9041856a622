"""A table of keys with a clock of its own, and how it is asked."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from django.utils import timezone

from accounts.base.errors import KeyRefused, Refusal
from accounts.keys.table import KeyTable

LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)


class Clock:
    """Unix time that moves when told to, an hour behind: what the tests write is new."""

    def __init__(self) -> None:
        self.now_s = timezone.now().timestamp() - 3600

    def __call__(self) -> float:
        return self.now_s

    def moment(self, offset_s: float = 0.0) -> datetime:
        return datetime.fromtimestamp(self.now_s + offset_s, UTC)


def bearer(secret: str) -> str:
    return f"Bearer {secret}"


def refusal(table: KeyTable, authorization: bytes | str | None, **kwargs: Any) -> Refusal:
    with pytest.raises(KeyRefused) as refused:
        table.authenticate(authorization, **kwargs)
    return refused.value.reason
