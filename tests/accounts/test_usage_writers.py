"""Concurrent writers that store the same usage count each request once."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection

from vinery_accounts.usage.entries import Admission, Outcome, Settlement
from vinery_accounts.usage.reports import Question, totals
from vinery_accounts.usage.store import store_settlements
from vinery_accounts.usage.verify import verify

DAY = datetime(2026, 3, 1, tzinfo=UTC)
NUM_REQUESTS = 200


def settlement(number: int) -> Settlement:
    admission = Admission(
        request_id=f"r{number}",
        user_id=number % 3,
        username="alice",
        key_id=number % 5,
        key_name="laptop",
        model=f"m{number % 2}",
        endpoint="x",
        dialect="v1",
        is_streamed=True,
        started_at=DAY + timedelta(hours=12, seconds=7 * number),
    )
    return Settlement(
        admission=admission,
        outcome=Outcome.OK,
        http_status=200,
        num_output_tokens=number,
        total_ms=10.0 + number,
    )


def store_all(seed: int) -> None:
    """Store all settlements. The seed sets their order and batches."""
    numbers = list(range(NUM_REQUESTS))
    random.Random(seed).shuffle(numbers)
    try:
        for at in range(0, NUM_REQUESTS, 20):
            store_settlements([settlement(number) for number in numbers[at : at + 20]])
    finally:
        connection.close()


@pytest.mark.django_db(transaction=True)
def test_concurrent_writers_count_each_request_once() -> None:
    with ThreadPoolExecutor(4) as writers:
        list(writers.map(store_all, range(4)))

    [checked] = verify(DAY, DAY + timedelta(days=1))
    question = Question(since=DAY, until=DAY + timedelta(days=1), visible=None)
    figures = totals(question).figures
    assert (checked.num_rows, checked.differences) == (NUM_REQUESTS, checked.differences[:0])
    assert figures.num_requests == figures.total_ms.num == NUM_REQUESTS
    assert figures.num_output_tokens == sum(range(NUM_REQUESTS))
