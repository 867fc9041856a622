"""The job `bench`: the speed card of a served model, measured through the socket of its engine with
several numbers of streams, one after the other. A sleeping model wakes, as for a request.

    {"model_id": 3, "settings_digest": "0a1b...", "folder": "/models/tiny-chat"}

The gateway uses the same socket: a client of the HTTP API sees the same speed, plus well under a
millisecond for each request. A measurement needs no key and is no usage. Prompts are words of a
list, each prompt different, the same in each run.
"""

import asyncio
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from random import Random
from statistics import median
from typing import Any, Final

import numpy as np
import psutil

from vinery_serving.core.request import Sampling
from vinery_serving.models.jobs import JobDocument, JobFailed, Reporter
from vinery_serving.processes.calls import Act
from vinery_serving.processes.confine import Needs
from vinery_serving.prompting.folder import ModelFolder, UnusableFolder
from vinery_serving.prompting.tokenizer import load_tokenizer
from vinery_serving.transport.client import EngineClient, EngineDisconnected
from vinery_serving.transport.messages import Accepted, Rejected, Submit, TokenOutput
from vinery_serving.transport.sockets import EngineAddress, UnixAddress, engine_socket, settings_key
from vinery_serving.transport.waiting import WaitingRequests

_DEADLINE_S: Final = 600.0


class MeasurementFailed(JobFailed):
    """The message is a sentence for administrators."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A greedy answer. Times are of the monotonic clock, in seconds."""

    num_prompt_tokens: int
    token_ids: tuple[int, ...]
    began_s: float
    chunks: tuple[tuple[float, int], ...]  # when tokens arrived, and how many

    @property
    def first_s(self) -> float:
        return self.chunks[0][0]

    @property
    def end_s(self) -> float:
        return self.chunks[-1][0]


@dataclass(frozen=True, slots=True)
class Run:
    answers: tuple[Answer, ...]

    @property
    def duration_s(self) -> float:
        return max(each.end_s for each in self.answers) - min(each.began_s for each in self.answers)

    @property
    def first_token_s(self) -> float:
        return median(each.first_s - each.began_s for each in self.answers)

    @property
    def prompt_tokens_per_s(self) -> float:
        """Of all streams together, until the last stream has a first token."""
        last_first_s = max(each.first_s for each in self.answers)
        began_s = min(each.began_s for each in self.answers)
        num_tokens = sum(each.num_prompt_tokens for each in self.answers)
        return num_tokens / max(last_first_s - began_s, 1e-9)

    @property
    def output_tokens_per_s(self) -> float:
        """Of all streams together, while all of them generate."""
        begin_s = max(each.first_s for each in self.answers)
        end_s = max(each.end_s for each in self.answers)
        num_tokens = sum(
            num for each in self.answers for at_s, num in each.chunks if begin_s < at_s <= end_s
        )
        return num_tokens / max(end_s - begin_s, 1e-9)


@dataclass
class Engine:
    """An engine that is measured. `num_own_tokens` counts the tokens that this client received."""

    client: EngineClient
    num_own_tokens: int = field(default=0)

    async def run(self, prompts: Sequence[Sequence[int]], num_tokens: int) -> Run:
        """Answer all prompts at once. Raises `MeasurementFailed` and EngineDisconnected."""
        answers = await asyncio.gather(*(self._answer(each, num_tokens) for each in prompts))
        return Run(tuple(answers))

    async def _answer(self, prompt: Sequence[int], num_tokens: int) -> Answer:
        began_s = time.monotonic()
        stream = self.client.submit([self._submit(prompt, num_tokens)])
        ids: list[int] = []
        chunks: list[tuple[float, int]] = []
        while True:
            updates = await stream.next(_DEADLINE_S)
            if not updates:
                raise MeasurementFailed(f"The engine sent nothing for {_DEADLINE_S:g} s.")
            for update in updates:
                match update:
                    case Rejected(message=message):
                        raise MeasurementFailed(f"The engine refused a request: {message}")
                    case TokenOutput(token_ids=new, finish=finish):
                        ids += new
                        if new:
                            chunks.append((time.monotonic(), len(new)))
                            self.num_own_tokens += len(new)
                        if finish is not None:
                            return Answer(len(prompt), tuple(ids), began_s, tuple(chunks))
                    case Accepted():
                        pass

    def _submit(self, prompt: Sequence[int], num_tokens: int) -> Submit:
        return Submit(
            id=self.client.new_id(),
            prompt_ids=np.array(prompt, dtype="<i4").tobytes(),
            sampling=Sampling(),
            max_new_tokens=num_tokens,
            deadline_s=_DEADLINE_S,
            ignore_eos=True,
        )


def memory_bytes(pid: int) -> int:
    """Return the resident memory of a process; 0 if it cannot be read."""
    try:
        return int(psutil.Process(pid).memory_info().rss)
    except psutil.Error:
        return 0


_WORDS: Final = (
    "the harbour library train neighbour bridge market weather garden waits for depends on looks "
    "like gives way to opens before snow river mill plan letter road mountains sound of bells and"
)
_QUESTION: Final = "\nRepeat the last sentence, and then write how the story goes on.\n"

Encode = Callable[[str], list[int]]


def prompt_ids(encode: Encode, number: int, num_tokens: int) -> list[int]:
    """Return a prompt of so many tokens, which begins like no other."""
    random = Random(number)
    ids = encode(f"Story {number}. ")
    while len(ids) < num_tokens:
        ids += encode(f"{' '.join(random.choices(_WORDS.split(), k=10))}. ")
    return ids[:num_tokens]


def next_turn(encode: Encode, prompt: Sequence[int], answer: Sequence[int]) -> list[int]:
    return [*prompt, *answer, *encode(_QUESTION)]


# -- The speed card

STREAMS: Final = (1, 4, 16)
_PROMPT_TOKENS: Final = 256
_OUTPUT_TOKENS: Final = 64
_WARM_UP_TOKENS: Final = 8
_PING_TIMEOUT_S: Final = 60.0


async def _measure(
    engine: Engine, encode: Encode, reporter: Reporter, *, seed: int
) -> dict[str, Any]:
    """Measure an engine beside its other requests. Another `seed` gives other prompts, so that none
    is in the prefix cache. Raises `MeasurementFailed`, EngineDisconnected and TimeoutError."""
    hello = engine.client.hello
    assert hello is not None
    room = hello.max_context or _PROMPT_TOKENS * 2
    num_prompt, num_output = min(_PROMPT_TOKENS, room // 2), min(_OUTPUT_TOKENS, room // 4)
    before = (await engine.client.ping(_PING_TIMEOUT_S)).tokens.num_output_tokens
    await engine.run([prompt_ids(encode, seed, num_prompt)], _WARM_UP_TOKENS)
    points = []
    for streams in (each for each in STREAMS if each <= hello.max_running):
        reporter.progress(f"measuring {streams} streams" if streams > 1 else "measuring")
        first = seed + 100 * streams
        prompts = [prompt_ids(encode, first + at, num_prompt) for at in range(streams)]
        points.append(_point(await engine.run(prompts, num_output), hello.pid))
    after = (await engine.client.ping(_PING_TIMEOUT_S)).tokens.num_output_tokens
    return {
        "points": points,
        "num_prompt_tokens": num_prompt,  # of each request
        "num_output_tokens": num_output,
        # That clients used meanwhile: they made the measured requests slower.
        "num_other_tokens": max(0, after - before - engine.num_own_tokens),
    }


def _point(run: Run, pid: int) -> dict[str, float]:
    return {
        "streams": len(run.answers),
        "prompt_tokens_per_s": round(run.prompt_tokens_per_s, 2),
        "output_tokens_per_s": round(run.output_tokens_per_s, 2),
        "first_token_s": round(run.first_token_s, 4),
        "memory_bytes": memory_bytes(pid),
    }


# A model that is asleep wakes first, and may have to wait for memory.
_CONNECT_TIMEOUT_S: Final = 600.0
_PACKAGES: Final = ("openvino", "openvino-genai")


def run(document: JobDocument, reporter: Reporter) -> Mapping[str, Any]:
    """Raises JobFailed."""
    encode = encode_of(Path(document.parameters["folder"]))
    key = settings_key(document.parameters["settings_digest"])
    address = EngineAddress(document.parameters["model_id"], key)
    try:
        card = asyncio.run(_measure_model(document, address, encode, reporter))
    except (EngineDisconnected, TimeoutError):
        raise JobFailed(
            "The engine ended or did not answer. Load the model, then measure again."
        ) from None
    versions = {name: metadata.version(name) for name in _PACKAGES}
    return {**card, "versions": versions}


def needs(document: JobDocument) -> Needs:
    """A measurement connects to the sockets of its engine and node."""
    folder, run_dir = Path(document.parameters["folder"]), document.home / "run"
    return Needs(
        reads=(folder, run_dir, Path("/proc"), Path("/sys")),
        acts=frozenset((Act.CONNECT,)),
        families=(socket.AF_UNIX,),
        descriptors=None,
    )


def encode_of(folder: Path) -> Encode:
    try:
        return load_tokenizer(ModelFolder.read(folder)).encode
    except UnusableFolder as error:
        raise JobFailed(str(error)) from error


async def _measure_model(
    document: JobDocument, address: EngineAddress, encode: Encode, reporter: Reporter
) -> dict[str, Any]:
    run_dir = document.home / "run"
    client = EngineClient(UnixAddress(engine_socket(run_dir, address)), document.engine_key)
    waiting = WaitingRequests(run_dir, document.node_key)
    client.open()
    try:
        reporter.progress("waiting for the model")
        with waiting.of(address.model_id):
            await client.wait_connected(_CONNECT_TIMEOUT_S)
        return await _measure(Engine(client), encode, reporter, seed=10_000 * document.job_id)
    finally:
        await waiting.close()
        await client.close()
