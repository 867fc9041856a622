"""How many requests begin in one pass of the event loop, and whose."""

import asyncio
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from tests.tables import table
from vinery_serving.gateway.endpoints.edge import (
    BeginInTurns,
    Message,
    Receive,
    Scope,
    Send,
    own_path,
)


async def receive() -> Message:
    return {}


async def send(message: Message) -> None:
    pass


class Begun:
    """Notes for each pass which requests begin."""

    def __init__(self) -> None:
        self.app = BeginInTurns(self, lambda scope: scope["client"], most=4)
        self.clients: list[str] = []
        self.num_passes = 0
        self.by_pass: Counter[int] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
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
