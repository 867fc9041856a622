"""Reading request bodies: complete, limited, with deadlines, and within a budget."""

import asyncio
from collections.abc import MutableMapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tables import table
from vinery_serving.core.errors import (
    BodyTooLarge,
    InvalidRequest,
    Overloaded,
    ServingError,
    TooManyBodies,
)
from vinery_serving.gateway.endpoints.bodies import (
    FREE_BYTES,
    BodyBudget,
    BodyLimits,
    ClientGone,
    read_body,
)

Message = MutableMapping[str, Any]

LIMITS = BodyLimits(max_bytes=2**20, timeout_s=60.0)
SILENT = r"nothing of it for 0.01 s"


def receiving(*messages: Message) -> Any:
    queue = list(messages)

    async def receive() -> Message:
        if not queue:
            await asyncio.Event().wait()
        return queue.pop(0)

    return receive


def chunk(body: bytes, *, more: bool) -> Message:
    return {"type": "http.request", "body": body, "more_body": more}


async def read(
    receive: Any,
    limits: BodyLimits = LIMITS,
    *,
    budget: BodyBudget | None = None,
    announced: int | None = None,
) -> bytes:
    headers = [] if announced is None else [(b"content-length", str(announced).encode())]
    with (budget or BodyBudget(2**30, 2**30)).claim("key") as claim:
        return await read_body({"headers": headers}, receive, limits, claim)


@table(
    "messages, limits, error, words",
    [
        ([chunk(b"abcd", more=True)], BodyLimits(3, 60.0), BodyTooLarge, None),
        ([chunk(b"a", more=True), {"type": "http.disconnect"}], LIMITS, ClientGone, None),
        ([chunk(b"a", more=True)], BodyLimits(9, 60.0, silence_s=0.01), InvalidRequest, SILENT),
    ],
)
async def test_a_body_that_is_too_large_or_does_not_arrive_is_refused_before_its_end(
    messages: list[Message], limits: BodyLimits, error: type[Exception], words: str | None
) -> None:
    with pytest.raises(error, match=words):
        await read(receiving(*messages), limits)


async def test_a_body_that_is_announced_as_too_large_is_not_read_and_one_has_a_deadline() -> None:
    with pytest.raises(BodyTooLarge):
        await read(receiving(), announced=LIMITS.max_bytes + 1)

    async def receive() -> Message:
        await asyncio.sleep(0.001)
        return chunk(b"a", more=True)

    with pytest.raises(InvalidRequest, match=r"did not arrive within 0.05 s"):
        await read(receive, BodyLimits(2**40, timeout_s=0.05))


async def test_bodies_of_one_owner_and_all_bodies_have_a_budget() -> None:
    budget = BodyBudget(10 * FREE_BYTES, 2 * FREE_BYTES)
    body = bytes(2 * FREE_BYTES)
    with budget.claim(1) as first, budget.claim(1) as second, budget.claim(2) as other:
        first.cover(len(body))
        second.cover(len(body))
        with pytest.raises(TooManyBodies) as refused:
            second.cover(len(body) + 1)
        other.cover(len(body))

    assert refused.value.status == 429
    assert refused.value.retry_after_s
    assert budget.num_bytes == 0

    budget = BodyBudget(FREE_BYTES, FREE_BYTES)
    with budget.claim(1) as first, budget.claim(2) as second:
        first.cover(2 * FREE_BYTES)
        with pytest.raises(Overloaded) as refused:
            second.cover(FREE_BYTES + 1)

    assert refused.value.status == 503
    assert refused.value.retry_after_s
    assert budget.num_bytes == 0


async def test_ordinary_bodies_are_read_while_the_budget_is_used_up() -> None:
    budget = BodyBudget(1, 1)
    with budget.claim("large") as large:
        large.cover(FREE_BYTES + 1)
        body = await read(receiving(chunk(bytes(FREE_BYTES), more=False)), budget=budget)

    assert len(body) == FREE_BYTES
    chunks = (chunk(b"ab", more=True), chunk(b"", more=True), chunk(b"c", more=False))
    assert await read(receiving(*chunks)) == b"abc"


@table("end", ["whole", "too large", "gone", "silent", "cancelled"])
async def test_the_budget_is_released_in_every_case(end: str) -> None:
    budget = BodyBudget(2**30, 2**30)
    last = {
        "whole": [chunk(b"a", more=False)],
        "too large": [chunk(bytes(LIMITS.max_bytes), more=True)],
        "gone": [{"type": "http.disconnect"}],
    }.get(end, [])
    limits = BodyLimits(LIMITS.max_bytes, 60.0, silence_s=0.01 if end == "silent" else 60.0)
    receive = receiving(chunk(bytes(2 * FREE_BYTES), more=True), *last)

    reading = asyncio.create_task(read(receive, limits, budget=budget))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    if end == "cancelled":
        assert budget.num_bytes == FREE_BYTES
        reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)

    assert budget.num_bytes == 0


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4 * FREE_BYTES)), max_size=30))
def test_claims_never_exceed_the_budget(bodies: list[tuple[int, int]]) -> None:
    budget = BodyBudget(6 * FREE_BYTES, 3 * FREE_BYTES)
    claims = []
    for owner, num_bytes in bodies:
        with budget.claim(owner) as claim:
            try:
                claim.cover(num_bytes)
            except ServingError:
                continue
            assert budget.num_bytes <= 6 * FREE_BYTES
            claims.append(claim)
            claim.keep(num_bytes // 2)  # instead of the body
            assert budget.num_bytes == max(0, num_bytes // 2 - FREE_BYTES)
        claim.release()  # a second time has no effect

    assert budget.num_bytes == 0
