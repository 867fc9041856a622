"""`python -m benchmarks.routing`: which engine of four gets a prompt, by rule.

Two web processes choose between four engines, each on its own. The engines compute nothing: they
wait as long as a processor would take, by a clock that jumps to the next event, so other programs
do not disturb the figures. An engine's cache has limited room, and overwrites what it found longest
ago. Clients have conversations that begin with one of some long documents.

`--real` asks two engines of tiny-chat instead, and counts the tokens that they compute.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import selectors
import subprocess
import sys
from array import array
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import chain, count, repeat
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any, Final, cast

from benchmarks.compare import Spread
from benchmarks.machine import REPOSITORY, markdown
from benchmarks.settings import TINY_CHAT
from vinery_serving.core.prompt_parts import KnownParts
from vinery_serving.core.prompt_parts import seed as seed_of
from vinery_serving.core.request import Sampling
from vinery_serving.engine.cached_prompts import CachedPrompts
from vinery_serving.engine.config import ENGINE_MODULE, EngineConfig
from vinery_serving.engine.options import EngineOptions
from vinery_serving.engine.prefix_cache import BLOCK
from vinery_serving.gateway.engines.models import Place
from vinery_serving.gateway.engines.replicas import Replicas
from vinery_serving.transport.client import EngineClient
from vinery_serving.transport.messages import PROTOCOL_VERSION, Hello, Load, Submit, TokenOutput
from vinery_serving.transport.sockets import UnixAddress

_NUM_ENGINES: Final = 4
_NUM_WEBS: Final = 2
_SLOTS: Final = 16
_CACHE_TOKENS: Final = 24_000
_STEP_TOKENS: Final = 256
_STEP_S: Final = 0.010
_TOKEN_S: Final = 0.000_2  # of a prompt, not cached
_STREAM_S: Final = 0.000_5  # of each answer in a step
_REPORT_S: Final = 0.1
_QUESTION_TOKENS: Final = 50
_ANSWER_TOKENS: Final = 60
_RUN_S: Final = 120.0

_HELLO: Final = Hello(PROTOCOL_VERSION, 1, 8192, max_running=_SLOTS)


class _JumpingSelector(selectors.SelectSelector):
    """Waits for no descriptor: the time of the loop jumps to the next event."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        assert timeout is not None, "every task waits for another one"
        self.now += max(0.0, timeout)
        return []


def _jumping_loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.SelectorEventLoop(selector := _JumpingSelector())
    loop.time = lambda: selector.now  # type: ignore[method-assign]
    return loop


@dataclass(eq=False)
class _Request:
    prompt: bytes
    client: Client
    done: asyncio.Future[None]
    num_left: int = 0  # tokens of the prompt
    tokens: list[int] = field(default_factory=list)


class Client:
    """The connection of one web process to one engine, as `Replicas` sees it."""

    def __init__(self, engine: Engine, number: int) -> None:
        self.path = Path(f"engine-1-{number}.sock")
        self.seed = seed_of(self.path.name)
        self.is_connected = self.is_running = True
        self.hello = _HELLO
        self.load: Load | None = None
        self.known = KnownParts()
        self.num_generations = 0
        self.engine = engine
        engine.clients.append(self)

    async def ask(self, prompt: bytes) -> list[int]:
        """Return the tokens of the answer."""
        request = _Request(prompt, self, asyncio.get_running_loop().create_future())
        self.num_generations += 1
        self.engine.waiting.append(request)
        await request.done
        self.num_generations -= 1
        return request.tokens


class _Cache:
    """The blocks of an engine's cache. The one that was found longest ago is overwritten first."""

    def __init__(self, num_tokens: int) -> None:
        self._num_blocks = num_tokens // BLOCK
        self._blocks: OrderedDict[int, None] = OrderedDict()

    def use(self, ids: bytes) -> int:
        """Put a sequence there. Returns how many of its first tokens were there."""
        num_found, known, is_found = 0, 0, True
        for end in range(4 * BLOCK, len(ids) + 1, 4 * BLOCK):
            known = hash((known, ids[end - 4 * BLOCK : end]))
            is_found = is_found and known in self._blocks
            num_found += BLOCK * is_found
            self._blocks[known] = None
            self._blocks.move_to_end(known)
            if len(self._blocks) > self._num_blocks:
                self._blocks.popitem(last=False)
        return num_found


class Engine:
    def __init__(self) -> None:
        self.clients: list[Client] = []
        self.waiting: deque[_Request] = deque()
        self._running: list[_Request] = []
        self._cache = _Cache(_CACHE_TOKENS)
        self._cached = CachedPrompts(lambda: _CACHE_TOKENS)
        self.num_prompt_tokens = self.num_computed = self.num_answer_tokens = 0

    async def run(self) -> None:
        """Step until cancelled."""
        loop, next_report_at = asyncio.get_running_loop(), 0.0
        while True:
            while self.waiting and len(self._running) < _SLOTS:
                self._begin(self.waiting.popleft())
            await asyncio.sleep(self._step())
            if loop.time() >= next_report_at:
                next_report_at = loop.time() + _REPORT_S
                num_answers = len(self._running) + len(self.waiting)
                load = Load(num_answers, *self._cached.changes())
                for client in self.clients:
                    client.load = load
                    client.known.take(load.added, load.dropped)

    def _begin(self, request: _Request) -> None:
        num_tokens = len(request.prompt) // 4
        request.num_left = max(1, num_tokens - self._cache.use(request.prompt))
        self.num_prompt_tokens += num_tokens
        self.num_computed += request.num_left
        self._running.append(request)

    def _step(self) -> float:
        num_left, num_streams = _STEP_TOKENS, 0
        for request in list(self._running):
            if request.num_left:
                num_now = min(request.num_left, num_left)
                request.num_left -= num_now
                num_left -= num_now
                if request.num_left == 0:
                    self._cached.note_prompt(_generation(request))
            else:
                num_streams += 1
                request.tokens.append(len(request.tokens))
                if len(request.tokens) == _ANSWER_TOKENS:
                    self._end(request)
        return _STEP_S + _TOKEN_S * (_STEP_TOKENS - num_left) + _STREAM_S * num_streams

    def _end(self, request: _Request) -> None:
        self.num_answer_tokens += len(request.tokens)
        self._running.remove(request)
        self._cache.use(request.prompt + array("i", request.tokens).tobytes())
        self._cached.note_end(_generation(request))
        request.done.set_result(None)


def _generation(request: _Request) -> Any:
    submit = SimpleNamespace(prompt_ids=request.prompt, cache_key=None)
    return SimpleNamespace(
        submit=submit, tokens=request.tokens, connection=request.client, is_echoed=False
    )


Choose = Callable[[bytes], Any]


def _round_robin(clients: Sequence[Any]) -> Choose:
    numbers = count()
    return lambda prompt: clients[next(numbers) % len(clients)]


def _reported(clients: Sequence[Any]) -> Choose:
    places = [Place(number) for number in range(len(clients))]
    return Replicas(lambda place: cast(EngineClient, clients[place.replica]), places).choose


RULES: Final = {"round robin": _round_robin, "as reported": _reported}


@dataclass(frozen=True)
class _Conversations:
    """What clients ask. Each turn goes to any web process."""

    num_clients: int
    num_of_client: int | None  # None: without end
    num_documents: int
    document_tokens: int
    num_turns: int
    pause_s: float  # between two turns, in the mean

    def begin(
        self,
        webs: Sequence[Choose],
        seed: int,
        ask: Callable[[Any, bytes], Awaitable[list[int]]],
        first_document: int = 0,
    ) -> list[asyncio.Task[None]]:
        rng = random.Random(seed)

        async def converse(rng: random.Random) -> None:
            for _ in repeat(None) if self.num_of_client is None else range(self.num_of_client):
                document = first_document + rng.randrange(self.num_documents)
                ids = list(_words(random.Random(document), self.document_tokens))
                for _ in range(self.num_turns):
                    await asyncio.sleep(rng.expovariate(1 / self.pause_s))
                    ids += _words(rng, _QUESTION_TOKENS)
                    prompt = array("i", ids).tobytes()
                    ids += await ask(rng.choice(webs)(prompt), prompt)

        rngs = [random.Random(rng.random()) for _ in range(self.num_clients)]
        return [asyncio.create_task(converse(each)) for each in rngs]


def _words(rng: random.Random, num: int) -> Iterator[int]:
    """Tokens of words of the reference model."""
    return (300 + rng.randrange(2600) for _ in range(num))


_SCRIPTED: Final = _Conversations(48, None, 32, 2_000, 4, pause_s=1.0)
# Of the real engines, whose caches grow to what runs at once.
_REAL: Final = _Conversations(4, 3, 6, 700, 3, pause_s=0.001)


@dataclass(frozen=True)
class Result:
    tokens_per_s: float  # of answers
    computed: float  # part of the prompts' tokens
    answer_s: float  # median


async def _run(rule: str, seed: int) -> Result:
    loop, times = asyncio.get_running_loop(), list[float]()
    engines = [Engine() for _ in range(_NUM_ENGINES)]

    async def ask(client: Client, prompt: bytes) -> list[int]:
        begun_at = loop.time()
        tokens = await client.ask(prompt)
        times.append(loop.time() - begun_at)
        return tokens

    webs = [
        RULES[rule]([Client(engine, number) for number, engine in enumerate(engines)])
        for _ in range(_NUM_WEBS)
    ]
    tasks = [asyncio.create_task(each.run()) for each in engines]
    tasks += _SCRIPTED.begin(webs, seed, ask)
    await asyncio.sleep(_RUN_S)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    num_computed = sum(each.num_computed for each in engines)
    return Result(
        sum(each.num_answer_tokens for each in engines) / _RUN_S,
        num_computed / sum(each.num_prompt_tokens for each in engines),
        median(times),
    )


def run(rule: str, seed: int) -> Result:
    with asyncio.Runner(loop_factory=_jumping_loop) as runner:
        return runner.run(_run(rule, seed))


_KEY: Final = b"of the sockets of this benchmark"


def _start(stack: ExitStack, home: Path, name: str) -> UnixAddress:
    """Start an engine of tiny-chat. Returns its address."""
    config = EngineConfig(
        name=TINY_CHAT,
        folder=REPOSITORY / "models" / TINY_CHAT,
        device="CPU",
        socket_path=home / f"{name}.sock",
        socket_key=_KEY,
        cache_dir=home / "cache",
        max_context=2048,
        options=EngineOptions(num_threads=1),
    )
    command = [sys.executable, "-m", ENGINE_MODULE, config.name]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    stack.enter_context(process)
    stack.callback(process.kill)
    assert process.stdin and process.stdout
    process.stdin.write(config.to_line())
    process.stdin.flush()
    process.stdout.readline()  # it is ready
    return UnixAddress(config.socket_path)


async def _run_real(engines: Sequence[UnixAddress], rule: str, seed: int) -> tuple[int, int]:
    """Return the tokens of all prompts, and those that were computed."""
    counts = [0, 0]

    async def ask(client: EngineClient, prompt: bytes) -> list[int]:
        submit = Submit(client.new_id(), prompt, Sampling(), 10, 600.0, ignore_eos=True)
        stream, tokens, is_over = client.submit([submit]), list[int](), False
        while not is_over:
            for update in await stream.next():
                if isinstance(update, TokenOutput):
                    is_over = update.finish is not None
                    if update.num_cached_tokens is not None:
                        counts[0] += len(prompt) // 4
                        counts[1] += len(prompt) // 4 - update.num_cached_tokens
                    tokens += update.token_ids
        return tokens

    clients = [[EngineClient(each, _KEY) for each in engines] for _ in range(_NUM_WEBS)]
    for client in chain.from_iterable(clients):
        client.open()
        await client.wait_connected(60)
    webs = [RULES[rule](each) for each in clients]
    await asyncio.gather(*_REAL.begin(webs, seed, ask, first_document=1000 * seed))
    for client in chain.from_iterable(clients):
        await client.close()
    return counts[0], counts[1]


def _print_real(rounds: int) -> None:
    counts = {rule: list[tuple[int, int]]() for rule in RULES}
    with ExitStack() as stack:
        home = Path(stack.enter_context(TemporaryDirectory()))
        engines = [_start(stack, home, name) for name in ("one", "two")]
        for seed, rule in enumerate(list(RULES) * rounds):
            counts[rule].append(asyncio.run(_run_real(engines, rule, seed)))
    sums = {rule: [sum(each) for each in zip(*of, strict=True)] for rule, of in counts.items()}
    rows = [(rule, f"{computed / all_:.0%}") for rule, (all_, computed) in sums.items()]
    print("\n".join(markdown(("rule", "prompt computed"), *rows)))


def main() -> None:
    """Print each rule's median of the rounds, and its ratio to round robin."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--real", action="store_true")
    args = parser.parse_args()
    if args.real:
        _print_real(args.rounds)
        return
    results = {rule: [run(rule, number) for number in range(args.rounds)] for rule in RULES}
    rows = []
    for rule, of_rule in results.items():
        pairs = zip(of_rule, results["round robin"], strict=True)
        ratio = Spread.of([each.tokens_per_s / base.tokens_per_s for each, base in pairs])
        rows.append(
            (
                rule,
                f"{median(each.tokens_per_s for each in of_rule):.0f}",
                f"{ratio.median:.2f} ({ratio.lowest:.2f} to {ratio.highest:.2f})",
                f"{median(each.computed for each in of_rule):.0%}",
                f"{median(each.answer_s for each in of_rule):.2f} s",
            )
        )
    heads = ("rule", "answer tokens/s", "to round robin", "prompt computed", "answer")
    print("\n".join(markdown(heads, *rows)))


if __name__ == "__main__":
    main()
