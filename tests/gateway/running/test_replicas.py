"""Which of several engines of a model gets a request."""

import asyncio
from array import array
from pathlib import Path
from typing import cast

from tests.conftest import until_in_loop
from tests.fakes.engine import HELLO, KEY, FakeEngine, Gateway
from vinery_serving.core.prompt_parts import MAX_PARTS, KnownParts, digests, seed
from vinery_serving.gateway.engines.models import Place
from vinery_serving.gateway.engines.replicas import Replicas
from vinery_serving.transport.client import EngineClient
from vinery_serving.transport.messages import Hello, Load
from vinery_serving.transport.sockets import UnixAddress


class ScriptedClient:
    """The connection to an engine of four slots."""

    def __init__(self, number: int) -> None:
        self.path = Path(str(number))
        self.seed = seed(str(number))
        self.is_connected = self.is_running = True
        self.hello: Hello | None = HELLO
        self.load: Load | None = Load(0)
        self.known = KnownParts()
        self.num_generations = 0
        self.closed = asyncio.Event()

    def open(self) -> None:
        pass

    async def close(self) -> None:
        self.closed.set()


def make(size: int) -> tuple[Replicas, list[ScriptedClient]]:
    places = [Place(number) for number in range(size)]
    replicas = Replicas(lambda place: cast(EngineClient, ScriptedClient(place.replica)), places)
    return replicas, cast(list[ScriptedClient], replicas.clients)


def prompt(*parts: int) -> bytes:
    """A prompt whose parts have 64 equal tokens each."""
    return b"".join(array("i", [part] * 64).tobytes() for part in parts)


def chosen(replicas: Replicas, prompt_ids: bytes) -> int:
    return int(replicas.choose(prompt_ids).path.name)


def test_a_request_goes_to_the_engine_that_has_least_to_do_also_for_other_web_processes():
    replicas, clients = make(3)
    clients[0].num_generations, clients[1].num_generations, clients[2].num_generations = 2, 1, 3
    assert chosen(replicas, prompt(1)) == 1

    replicas, clients = make(2)
    clients[0].load = Load(3)
    assert chosen(replicas, prompt(1)) == 1
    assert chosen(replicas, prompt(2)) == 1


def test_a_conversation_goes_back_to_its_engine_until_that_one_is_full():
    replicas, clients = make(2)
    first = prompt(*range(8))
    clients[0].num_generations = 1
    assert chosen(replicas, first) == 1
    clients[1].num_generations, clients[0].num_generations = 3, 0
    assert chosen(replicas, first + prompt(8)) == 1
    clients[1].num_generations = 4
    assert chosen(replicas, first + prompt(8, 9)) == 0
    clients[1].num_generations = 0
    assert chosen(replicas, first + prompt(8, 9, 10)) == 0  # engine 0 has more of the prompt now
    # Prompts with a short common beginning do not gather on one engine.
    replicas, clients = make(2)
    clients[0].num_generations = 1
    assert chosen(replicas, prompt(1, 2, 3, 4)) == 1
    clients[1].num_generations, clients[0].num_generations = 3, 1
    assert chosen(replicas, prompt(1, 7, 8, 9)) == 0
    # If all are full, the one with the least to do.
    clients[0].num_generations, clients[1].num_generations = 5, 4
    assert chosen(replicas, prompt(5)) == 1


def test_a_prompt_goes_to_the_engine_that_reports_it_until_the_engine_drops_it():
    replicas, clients = make(3)
    ids = prompt(*range(9))
    home = chosen(make(3)[0], ids)
    other = clients[(home + 1) % 3]
    other.num_generations = 4 - 1
    other.known.take(digests(ids, None), ())
    assert chosen(replicas, ids) == (home + 1) % 3
    assert int(replicas.choose(ids, b"another cache key").path.name) != (home + 1) % 3

    replicas, clients = make(3)
    assert chosen(replicas, ids) == home
    clients[home].num_generations = 1
    assert chosen(replicas, ids) == home
    clients[home].known.take((), digests(ids, None))  # also what this process has only sent
    assert chosen(replicas, ids) != home
    # A part without the parts before it is of no use.
    clients[home].known.take(list(digests(ids, None))[1:], ())
    clients[home].num_generations = 2
    assert chosen(replicas, ids) != home


def test_an_engine_more_or_less_changes_only_its_own_share():
    prompts = [prompt(number, 1) for number in range(200)]
    of_three = [chosen(make(3)[0], each) for each in prompts]
    of_four = [chosen(make(4)[0], each) for each in prompts]
    assert all(new in (old, 3) for old, new in zip(of_three, of_four, strict=True))
    assert all(of_four.count(number) >= 20 for number in range(4))

    for each, before in zip(prompts, of_four, strict=True):
        replicas, clients = make(4)
        clients[1].is_connected = False
        assert (chosen(replicas, each) == before) is (before != 1)


def test_prompts_and_reports_without_end_do_not_grow_the_tables():
    known = KnownParts()
    for number in range(9):
        parts = range(number * MAX_PARTS // 4, (number + 1) * MAX_PARTS // 4)
        known.note_sent(parts)
        known.take([1_000_000 + each for each in parts], ())
    assert len(known._sent) == len(known._reported) == MAX_PARTS
    assert known.num_known(range(9 * MAX_PARTS // 4 - 5, 9 * MAX_PARTS // 4)) == 5
    assert known.num_known([0]) == 0


async def until_known(client: EngineClient, parts: list[int], num: int) -> None:
    await until_in_loop(lambda: client.known and client.known.num_known(parts) == num)


async def test_the_next_engine_of_a_socket_has_only_what_it_reports_itself(tmp_path):
    async def first(gateway: Gateway) -> None:
        gateway.send(Load(0, added=(1, 2)), Load(0, added=(3,), dropped=(1,)))
        await gateway.receive()

    async def second(gateway: Gateway) -> None:
        gateway.send(Load(0, added=(9,)))
        await gateway.receive()

    async with FakeEngine(tmp_path / "engine.sock", first, second):
        client = EngineClient(UnixAddress(tmp_path / "engine.sock"), KEY)
        assert client.known is None
        client.open()
        await until_known(client, [2, 3, 1], 2)
        assert client._link is not None
        client._link.close()
        await until_known(client, [9, 2, 3], 1)
        await client.close()


async def test_replicas_are_added_and_closed_once_they_have_no_answers_left():
    replicas, clients = make(1)
    await replicas.move([Place(0), Place(1), Place(1, "moon:8001")])
    assert [each.path.name for each in replicas.clients] == ["0", "1", "1"]
    here, elsewhere = cast(list[ScriptedClient], replicas.clients[1:])
    elsewhere.num_generations = 1
    await replicas.move([Place(0)])
    assert replicas.clients == clients[:1]
    await asyncio.wait_for(here.closed.wait(), 30)
    assert not elsewhere.closed.is_set()
    elsewhere.num_generations = 0
    await asyncio.wait_for(elsewhere.closed.wait(), 30)

    clients[0].num_generations = 1
    await replicas.move([Place(1)])
    await replicas.close()
    assert clients[0].closed.is_set()
