"""The job `tune`: looks for better engine options of a model, one setting after the other; the best
value of each is kept.

    {"folder": "/models/tiny-chat", "device": "CPU", "options": {}, "max_context": 2048,
     "time_limit_s": 300, "allow_other_answers": false}

Each trial runs in an engine of its own, beside one with the present options. Both do the same work
in turns, so that other load of the machine slows both. The work is a chat: each turn repeats all
former turns.
"""

import asyncio
import json
import os
import secrets
import socket
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import geometric_mean, median
from subprocess import PIPE
from typing import Any, Final

import msgspec
import psutil

from vinery_serving.engine.config import EngineConfig, needs_of
from vinery_serving.engine.options import parse_options
from vinery_serving.models.jobs import JobDocument, JobFailed, Reporter
from vinery_serving.models.speed.bench import (
    Encode,
    Engine,
    MeasurementFailed,
    Run,
    encode_of,
    next_turn,
    prompt_ids,
)
from vinery_serving.processes.calls import Act
from vinery_serving.processes.child import ChildProcess
from vinery_serving.processes.confine import Needs
from vinery_serving.transport.client import EngineClient, EngineDisconnected
from vinery_serving.transport.sockets import UnixAddress


class Change(msgspec.Struct, frozen=True):
    """A change of engine options. `plugin` is merged with the present properties."""

    what: str  # in words for administrators
    options: dict[str, Any]

    def applied_to(self, options: Mapping[str, Any]) -> dict[str, Any]:
        changed = {**options, **self.options}
        if "plugin" in self.options:
            changed["plugin"] = {**options.get("plugin", {}), **self.options["plugin"]}
        return changed


def knobs(options: Mapping[str, Any], *, device: str, is_vision: bool) -> Iterator[list[Change]]:
    """Yield the other values of each setting of a device. The most helpful ones come first."""
    if not options.get("enable_prefix_caching", True):
        yield [Change("prefix caching", {"enable_prefix_caching": True})]
    present = options.get("max_num_batched_tokens", 256)
    yield [
        Change(f"{size} tokens in a step", {"max_num_batched_tokens": size})
        for size in (1024, 512, 128)
        if size != present
    ]
    drafting = ("draft_model", "eagle3_head", "prompt_lookup")
    if not (is_vision or any(options.get(each) for each in drafting)):
        yield [Change("prompt lookup", {"prompt_lookup": True})]
    if device == "CPU":
        yield _threads(options)
        name, groups = "DYNAMIC_QUANTIZATION_GROUP_SIZE", ("0", "32", "128")
        yield _plugin(options, name, groups, "dynamic quantization group")
    yield _plugin(options, "KV_CACHE_PRECISION", ("u8", "f16"), "KV precision")


def _threads(options: Mapping[str, Any]) -> list[Change]:
    num_all = os.cpu_count() or 1
    present = options.get("num_threads", 0) or num_all
    num_physical = psutil.cpu_count(logical=False) or num_all
    others = sorted({num_all, num_physical, max(1, num_all - 1)} - {present}, reverse=True)
    return [Change(f"{num} threads", {"num_threads": num}) for num in others]


def _plugin(
    options: Mapping[str, Any], name: str, values: tuple[str, ...], what: str
) -> list[Change]:
    present = options.get("plugin", {}).get(name)
    return [
        Change(f"{what} {value}", {"plugin": {name: value}}) for value in values if value != present
    ]


STREAMS: Final = (1, 4)
_PROMPT_TOKENS: Final = 96
_OUTPUT_TOKENS: Final = 24
_NUM_TURNS: Final = 3
# A smaller gain is within what repeated measurements differ by.
_LEAST_GAIN: Final = 1.03

Start = Callable[[Mapping[str, Any]], AbstractAsyncContextManager[Engine]]


class TrialResult(msgspec.Struct, frozen=True):
    """A trial. A gain of 1.2: the same work is done 1.2 times as fast as with present options."""

    what: str
    options: dict[str, Any]
    gain: float | None = None  # None: it failed
    gains: dict[int, float] = {}  # by number of streams, the median of the rounds
    worst: dict[int, float] = {}  # the least of the rounds
    same_answers: float = 1.0  # the part of the greedy answers that stays the same, 0 to 1
    is_kept: bool = False
    error: str = ""


class Tuning(msgspec.Struct, frozen=True):
    present: dict[str, Any]
    trials: tuple[TrialResult, ...]
    best: dict[str, Any]
    best_gain: float
    is_complete: bool  # False: the time ended before all settings were tried
    took_s: float


@dataclass
class Tuner:
    """A search. `allows_other_answers`: options that change greedy answers may win."""

    start: Start
    encode: Encode
    present: Mapping[str, Any]
    device: str
    is_vision: bool
    allows_other_answers: bool
    time_limit_s: float
    report: Callable[[str], object]
    _trials: list[TrialResult] = field(default_factory=list)
    _seed: int = 0

    async def run(self) -> Tuning:
        """Raises `MeasurementFailed` if the present options cannot be measured."""
        began_s = time.monotonic()
        end_s = began_s + self.time_limit_s
        best, best_gain, is_complete = dict(self.present), 1.0, True
        settings = list(knobs(self.present, device=self.device, is_vision=self.is_vision))
        self.report("measuring the present options")
        async with self.start(self.present) as base:
            await self._warm_up(base)
            for changes in settings:
                found: list[TrialResult] = []
                for change in changes:
                    if time.monotonic() >= end_s:
                        is_complete = False
                        break
                    found.append(await self._try(base, change.what, change.applied_to(best)))
                winner = max(filter(self._may_win, found), key=_gain, default=None)
                if winner is not None and _gain(winner) > best_gain * _LEAST_GAIN:
                    best, best_gain = winner.options, _gain(winner)
                    at = self._trials.index(winner)
                    self._trials[at] = msgspec.structs.replace(winner, is_kept=True)
        return Tuning(
            present=dict(self.present),
            trials=tuple(self._trials),
            best=best,
            best_gain=round(best_gain, 3),
            is_complete=is_complete,
            took_s=round(time.monotonic() - began_s, 1),
        )

    def _may_win(self, trial: TrialResult) -> bool:
        """Whether the worst rounds are no slower on average, with answers that are allowed."""
        has_answers = self.allows_other_answers or trial.same_answers == 1
        return trial.gain is not None and has_answers and geometric_mean(trial.worst.values()) >= 1

    async def _try(self, base: Engine, what: str, options: dict[str, Any]) -> TrialResult:
        """Measure options beside the present ones. Options that fail are a result, too."""
        self.report(f"trial {len(self._trials) + 1}: {what}")
        try:
            async with self.start(options) as engine:
                result = await self._compare(base, engine, what, options)
        except (MeasurementFailed, EngineDisconnected) as error:
            result = TrialResult(what, options, error=str(error) or "The engine ended.")
        self._trials.append(result)
        return result

    async def _compare(
        self, base: Engine, engine: Engine, what: str, options: dict[str, Any]
    ) -> TrialResult:
        await self._warm_up(engine)
        same: list[bool] = []
        ratios = {each: await self._rounds(base, engine, each, same) for each in STREAMS}
        gains = {streams: median(each) for streams, each in ratios.items()}
        return TrialResult(
            what,
            options,
            gain=round(geometric_mean(gains.values()), 3),
            gains={streams: round(gain, 3) for streams, gain in gains.items()},
            worst={streams: round(min(each), 3) for streams, each in ratios.items()},
            same_answers=round(sum(same) / len(same), 3),
        )

    async def _warm_up(self, engine: Engine) -> None:
        """Do the work once: the plugin compiles kernels for shapes that it has not seen."""
        for streams in STREAMS:
            await self._work(engine, [self._prompt() for _ in range(streams)])

    async def _rounds(
        self, base: Engine, engine: Engine, streams: int, same: list[bool]
    ) -> list[float]:
        """Return the gain of each round. Whether answers are the same is added to `same`."""
        ratios: list[float] = []
        spent_s = 0.0
        # More rounds if rounds are short, because short rounds differ more.
        while len(ratios) < 2 or (spent_s < 6 and len(ratios) < 8):
            prompts = [self._prompt() for _ in range(streams)]
            before = await self._work(base, prompts)
            after = await self._work(engine, prompts)
            ratios.append(_duration_s(before) / _duration_s(after))
            spent_s += _duration_s(before) + _duration_s(after)
            same += _same(before, after)
            if ratios[-1] < 0.9:
                break
        return ratios

    def _prompt(self) -> list[int]:
        self._seed += 1
        return prompt_ids(self.encode, self._seed, _PROMPT_TOKENS)

    async def _work(self, engine: Engine, prompts: Sequence[Sequence[int]]) -> list[Run]:
        turns: list[Run] = []
        for _ in range(_NUM_TURNS):
            turn = await engine.run(prompts, _OUTPUT_TOKENS)
            turns.append(turn)
            prompts = [
                next_turn(self.encode, prompt, answer.token_ids)
                for prompt, answer in zip(prompts, turn.answers, strict=True)
            ]
        return turns


def _gain(trial: TrialResult) -> float:
    return trial.gain or 0.0


def _duration_s(turns: Iterable[Run]) -> float:
    return sum(run.duration_s for run in turns)


def _same(before: Iterable[Run], after: Iterable[Run]) -> list[bool]:
    """Whether each answer is the same. A turn after another answer cannot be compared."""
    same: list[bool] = []
    others: set[int] = set()  # the chats with another answer
    for one, other in zip(before, after, strict=True):
        for chat, (first, second) in enumerate(zip(one.answers, other.answers, strict=True)):
            if chat not in others:
                same.append(first.token_ids == second.token_ids)
            if first.token_ids != second.token_ids:
                others.add(chat)
    return same


# -- The engines of the trials

_NUM_ENGINES: Final = 2
_LOAD_TIMEOUT_S: Final = 600.0


def run(document: JobDocument, reporter: Reporter) -> Mapping[str, Any]:
    """Raises JobFailed."""
    asked = document.parameters
    folder, device = Path(asked["folder"]), str(asked["device"])
    _check_memory(folder, device)

    def start(options: Mapping[str, Any]) -> AbstractAsyncContextManager[Engine]:
        context = int(asked["max_context"])
        return trial_engine(folder, device, dict(options), context, _LOAD_TIMEOUT_S)

    tuner = Tuner(
        start=start,
        encode=encode_of(folder),
        present=asked["options"],
        device=device,
        is_vision=(folder / "openvino_text_embeddings_model.xml").exists(),
        allows_other_answers=bool(asked.get("allow_other_answers")),
        time_limit_s=float(asked["time_limit_s"]),
        report=reporter.progress,
    )
    try:
        tuning = asyncio.run(tuner.run())
    except MeasurementFailed as error:
        raise JobFailed(f"The present options cannot be measured: {error}") from error
    except EngineDisconnected:
        raise JobFailed("The engine with the present options ended.") from None
    result: dict[str, Any] = msgspec.to_builtins(tuning, str_keys=True)
    return result


def needs(document: JobDocument) -> Needs:
    """What an engine needs, and to start it: the engines of the trials may then do less."""
    asked = document.parameters
    scratch = Path(tempfile.gettempdir())
    config = _config(Path(asked["folder"]), asked["device"], asked["options"], 0, scratch)
    acts, runs = frozenset(Act) - {Act.OWN}, (Path(sys.executable),)
    return replace(needs_of(config), acts=acts, families=(socket.AF_UNIX,), runs=runs)


def _check_memory(folder: Path, device: str) -> None:
    """Raises JobFailed if the engines of the trials do not fit into the free memory."""
    if device != "CPU":
        return
    num_bytes = sum(file.stat().st_size for file in folder.glob("*.bin"))
    # An engine with a small cache: a multiple of the weights, and the process.
    needed = _NUM_ENGINES * (int(1.3 * num_bytes) + (400 << 20))
    available = psutil.virtual_memory().available
    if available < needed:
        raise JobFailed(
            f"Trials need {needed / 2**30:.1f} GB of memory for {_NUM_ENGINES} engines, and "
            f"{available / 2**30:.1f} GB are free. Unload this model or others, and tune again."
        )


_END_TIMEOUT_S: Final = 5.0


@asynccontextmanager
async def trial_engine(
    folder: Path, device: str, options: dict[str, Any], max_context: int, timeout_s: float
) -> AsyncIterator[Engine]:
    """Run an engine until the block ends. Raises `MeasurementFailed` if it does not load."""
    with tempfile.TemporaryDirectory(prefix="vinery-trial-") as scratch:
        config = _config(folder, device, options, max_context, Path(scratch))
        process = ChildProcess(
            (sys.executable, "-m", "vinery_serving.engine", config.name),
            "trial",
            environment=dict(os.environ) | {"TMPDIR": scratch},
            stdin=PIPE,
            stdout=PIPE,
            leads_group=False,  # the node ends the process group of the job
        )
        client = EngineClient(UnixAddress(config.socket_path), config.socket_key)
        try:
            await process.write(config.to_line())
            await _wait_ready(process, timeout_s)
            client.open()
            await client.wait_connected(10.0)
            yield Engine(client)
        finally:
            await client.close()
            await asyncio.shield(process.end(_END_TIMEOUT_S))


def _config(
    folder: Path, device: str, options: dict[str, Any], max_context: int, scratch: Path
) -> EngineConfig:
    return EngineConfig(
        name="trial",
        folder=folder,
        device=device,
        socket_path=scratch / "engine.sock",
        socket_key=secrets.token_bytes(32),
        cache_dir=scratch,
        max_context=max_context,
        options=parse_options({**options, "logits_processors": []}),  # no trial asks for them
    )


async def _wait_ready(process: ChildProcess, timeout_s: float) -> None:
    """Raises `MeasurementFailed` with the reason of an engine that does not load."""
    output = await process.output()
    try:
        async with asyncio.timeout(timeout_s):
            line = await output.readline()
    except TimeoutError:
        raise MeasurementFailed(f"It did not load within {timeout_s:.0f} s.") from None
    report = json.loads(line) if line else {"event": "failed", "error": "The engine process ended."}
    if report["event"] != "ready":
        raise MeasurementFailed(" ".join(str(report["error"]).split()))
