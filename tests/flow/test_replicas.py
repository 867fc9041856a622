"""Which of several engines of a model gets a request."""

import asyncio
from array import array
from pathlib import Path
from typing import cast

from tests.fakes.engine import HELLO
from tests.tables import table
from vinery_serving.gateway.engines.models import Place
from vinery_serving.gateway.engines.replicas import Replicas
from vinery_serving.transport.client import EngineClient
from vinery_serving.transport.messages import Hello, Load


class ScriptedClient:
    """The connection to an engine of four slots."""

    def __init__(self, number: int) -> None:
        self.path = Path(str(number))
        self.is_connected = self.is_running = True
        self.hello: Hello | None = HELLO
        self.load: Load | None = Load(0)
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


def test_first_prompts_are_divided_between_the_engines_that_have_not_ended():
    replicas, clients = make(3)
    assert {chosen(replicas, prompt(number)) for number in range(20)} == {0, 1, 2}

    replicas, clients = make(2)
    first = chosen(replicas, prompt(1, 2))
    clients[first].is_connected = False
    assert chosen(replicas, prompt(1, 2, 3)) == 1 - first


def test_a_conversation_goes_back_to_its_engine_until_that_one_is_full():
    replicas, clients = make(2)
    clients[0].num_generations = 1
    assert chosen(replicas, prompt(1, 2)) == 1
    clients[1].num_generations, clients[0].num_generations = 3, 0
    assert chosen(replicas, prompt(1, 2, 3)) == 1
    clients[1].num_generations = 4
    assert chosen(replicas, prompt(1, 2, 3, 4)) == 0
    clients[1].num_generations = 0
    assert chosen(replicas, prompt(1, 2, 3, 4, 5)) == 0  # engine 0 has more of the prompt now
    # Prompts with a common beginning do not gather on one engine.
    replicas, clients = make(2)
    clients[0].num_generations = 1
    assert chosen(replicas, prompt(1, 2, 3, 4)) == 1
    clients[1].num_generations, clients[0].num_generations = 2, 1
    assert chosen(replicas, prompt(1, 7, 8, 9)) == 0


@table("number", range(6))
def test_web_processes_that_know_nothing_of_each_other_choose_the_same_engine(number):
    first, _ = make(3)
    second, clients = make(3)
    home = chosen(first, prompt(number, 2))
    assert chosen(second, prompt(number, 2, 3)) == home
    clients[home].num_generations = 1
    assert chosen(second, prompt(number, 4, 5, 6, 7, 8)) != home  # another engine has less to do


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

    await replicas.move([Place(1)])
    clients[0].num_generations = 1
    await asyncio.sleep(0)
    await replicas.close()
    assert clients[0].closed.is_set()
