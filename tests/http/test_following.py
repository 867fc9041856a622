"""Who follows a background response waits while the database is away, and misses no event."""

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import InterfaceError, OperationalError

from vinery_accounts.stored.rows import NotStored
from vinery_accounts.stored.runs import FoundEvents
from vinery_serving.gateway.endpoints import background
from vinery_serving.gateway.endpoints.background import BackgroundRuns
from vinery_serving.protocols.common.encoding import DONE, KEEP_ALIVE

FRAMES = [b"event: %d\n\n" % number for number in range(5)]


def found(first: int, last: int, *, is_over: bool = False) -> FoundEvents:
    return FoundEvents(FRAMES[first:last], is_over, has_gone=False)


async def followed(monkeypatch: pytest.MonkeyPatch, answers: Iterator[Any]) -> list[bytes]:
    """What a follower of a run in another process gets, if the database answers so."""

    async def recall(_: Callable[[], Any]) -> Any:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(background, "_FOLLOW_INTERVAL_S", 0.0)
    monkeypatch.setattr(background, "SILENCE_S", 0.0)
    runs = BackgroundRuns(SimpleNamespace(recall=recall))  # type: ignore[arg-type]
    return [each async for each in runs.follow(1, "resp_1", -1)]


async def test_an_outage_of_the_database_is_silence_with_keep_alives(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    away = [OperationalError("away"), TimeoutError(), InterfaceError("closed")]
    answers = iter([found(0, 2), *away, found(2, 3), OperationalError(), found(3, 5, is_over=True)])

    assert await followed(monkeypatch, answers) == [
        *(b"".join(FRAMES[:2]), KEEP_ALIVE, KEEP_ALIVE, KEEP_ALIVE),
        *(FRAMES[2], KEEP_ALIVE, b"".join(FRAMES[3:]), DONE),
    ]


async def test_a_response_that_was_deleted_during_an_outage_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers = iter([found(0, 2), OperationalError(), NotStored("Response", "resp_1")])

    assert (await followed(monkeypatch, answers))[-2:] == [KEEP_ALIVE, DONE]
