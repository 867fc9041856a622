"""Reading request bodies: complete, limited, with deadlines, and within a budget; requests that
begin, and their paths."""

import asyncio
from collections import Counter
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
from vinery_serving.gateway.endpoints import edge
from vinery_serving.gateway.endpoints.bodies import (
    FREE_BYTES,
    BodyBudget,
    BodyLimits,
    ClientGone,
    read_body,
)
from vinery_serving.gateway.endpoints.edge import BeginInTurns, own_path

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


# -- How many requests begin in one pass of the event loop, and whose


async def receive() -> edge.Message:
    return {}


async def send(message: edge.Message) -> None:
    pass


class Begun:
    """Notes for each pass which requests begin."""

    def __init__(self) -> None:
        self.app = BeginInTurns(self, lambda scope: scope["client"], most=4)
        self.clients: list[str] = []
        self.num_passes = 0
        self.by_pass: Counter[int] = Counter()

    async def __call__(self, scope: edge.Scope, receive: edge.Receive, send: edge.Send) -> None:
        self.clients.append(scope["client"])
        self.by_pass[self.num_passes] += 1

    async def count_passes(self) -> None:
        while True:
            await asyncio.sleep(0)
            self.num_passes += 1


async def test_no_pass_begins_more_than_a_few_requests() -> None:
    begun = Begun()
    counting = asyncio.create_task(begun.count_passes())

    await asyncio.gather(*(begun.app({"client": "a"}, receive, send) for _ in range(50)))

    counting.cancel()
    assert len(begun.clients) == 50
    assert max(begun.by_pass.values()) <= 4


async def test_another_client_has_its_turn_in_the_next_pass() -> None:
    begun = Begun()

    clients = ["a"] * 50 + ["b"]
    await asyncio.gather(*(begun.app({"client": each}, receive, send) for each in clients))

    assert "b" in begun.clients[:6]


async def test_a_client_that_leaves_takes_no_turn() -> None:
    begun = Begun()
    coroutines = [begun.app({"client": each}, receive, send) for each in "a" * 30 + "b"]
    tasks = list(map(asyncio.create_task, coroutines))
    await asyncio.sleep(0)
    for task in tasks[4:30]:
        task.cancel()
    await asyncio.wait(tasks)

    assert begun.clients == ["a"] * 4 + ["b"]


# -- Paths of Azure's clients, and base URLs with a slash or `/v1` too many


@table(
    "sent, own, deployment",
    [
        ("/openai/deployments/tiny/chat/completions", "/v1/chat/completions", "tiny"),
        ("/openai/deployments/tiny/completions", "/v1/completions", "tiny"),
        ("/openai/deployments/org/tiny/chat/completions", "/v1/chat/completions", "org/tiny"),
        ("/openai/v1/responses", "/v1/responses", None),
        ("/openai/v1/models/org/tiny", "/v1/models/org/tiny", None),
        ("/openai/responses", "/v1/responses", None),
        ("/openai/models", "/v1/models", None),
        ("/v1//chat/completions", "/v1/chat/completions", None),
        ("/v1/models/a//b", "/v1/models/a//b", None),  # the name of a model
        ("/openai/deployments/tiny/images", "/openai/deployments/tiny/images", None),
        ("//v3/chat//completions/", "/v3/chat/completions", None),
        ("/v1/v1/completions", "/v1/completions", None),
        ("/v3/v1/chat/completions", "/v3/chat/completions", None),
        ("/v1/v3/chat/completions", "/v3/chat/completions", None),
        ("/openai/v1/v1/chat/completions", "/v1/chat/completions", None),
        *((f"/{each}/v2/rerank", "/v2/rerank", None) for each in ("v1", "v2", "v3")),
        *((f"/{each}/v1/rerank", f"/{each}/rerank", None) for each in ("v1", "v2", "v3")),
    ],
)
def test_the_path_of_another_server_is_a_path_of_this_api(
    sent: str, own: str, deployment: str | None
) -> None:
    assert own_path(sent) == (own, deployment)


@given(st.lists(st.sampled_from(["openai", "v1", "v2", "v3", "admin", "api", "chat", "", ".."])))
def test_no_path_leaves_the_api(parts: list[str]) -> None:
    """Only a path that names the API comes out changed, and only as a path of the API."""
    path = "/" + "/".join(parts)
    own = own_path(path).path

    assert own == path or own.split("/")[1] in ("v1", "v2", "v3")
    assert own == path or next(filter(None, parts)) in ("v1", "v2", "v3", "openai")
