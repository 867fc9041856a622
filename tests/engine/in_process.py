"""A pipeline, generations and the engine's loop, all in the test's process."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from msgspec import structs
from tokenizers import Tokenizer

from tests.conftest import until
from tests.engine.conftest import NO_REASONING, TINY_CHAT, Answer, chat_text, engine_config
from tests.prepared_home import EXACT
from vinery_serving.core.request import Sampling
from vinery_serving.engine.batch import Batch
from vinery_serving.engine.config import EngineConfig
from vinery_serving.engine.fair_queue import Lane
from vinery_serving.engine.generation import FailedGeneration, Generation
from vinery_serving.engine.kinds.text import TextEngine
from vinery_serving.engine.logits_handler import LogitsHandler
from vinery_serving.engine.loop import EngineLoop
from vinery_serving.engine.options import parse_options
from vinery_serving.engine.pipeline import Pipeline
from vinery_serving.transport import messages
from vinery_serving.transport.server import Connection, Incoming, SocketServer

TOKENIZER = Tokenizer.from_file(str(TINY_CHAT / "tokenizer.json"))
LOGPROBS = messages.LogitsSpec(logprobs=messages.LogprobsSpec(num_top=2))
BAD_GRAMMAR = messages.GrammarSpec("json_schema", '{"type": "nonsense"}')  # its step fails


def pipeline_of(folder: Path, home: Path, **options: object) -> Pipeline:
    return Pipeline(config_of(folder, home, **options))


def config_of(folder: Path, home: Path, **options: object) -> EngineConfig:
    options = {"num_threads": 1, **EXACT, **options}
    config = engine_config(home, "engine", options, folder)
    return structs.replace(config, name="model")


def served(home: Path, **options: Any) -> Pipeline:
    """tiny-chat with these options as administrators write them."""
    parsed = parse_options(options)
    return pipeline_of(TINY_CHAT, home, **{name: getattr(parsed, name) for name in options})


def logprobs(of: Any) -> list[float]:
    return [each.logprob for each in of.logprobs]


def assert_alike(one: Any, other: Any, tolerance: float = 1e-3) -> None:
    assert one.tokens == other.tokens
    assert logprobs(one) == pytest.approx(logprobs(other), abs=tolerance)


def emptied(pipeline: Pipeline) -> Iterator[Batch]:
    batch = Batch(pipeline, capacity=16)
    yield batch
    for generation in [*batch._running, *batch._suspects]:
        batch.remove(generation)
    while pipeline.has_work:
        pipeline.step()


def ids_of(text: str) -> list[int]:
    return list(TOKENIZER.encode(text, add_special_tokens=False).ids)


def chat(text: str, *, reasons: bool = False) -> list[int]:
    return ids_of(chat_text(text, "<think>\n" if reasons else NO_REASONING))


def generation(
    prompt: str | list[int], logits: messages.LogitsSpec | None = None, **values: Any
) -> Generation:
    """Greedy decoding of at most 40 tokens, unless `values` ask for something else."""
    ids = chat(prompt) if isinstance(prompt, str) else prompt
    asked = {"sampling": Sampling(), "max_new_tokens": 40, "deadline_s": 60}
    prompt_ids = np.array(ids, dtype="<i4").tobytes()
    submit = messages.Submit(1, prompt_ids, logits=logits, **{**asked, **values})
    return with_logits_handler(Generation.of(None, submit))


def with_logits_handler(generation: Generation) -> Generation:
    if generation.submit.logits is not None:
        generation.logits = LogitsHandler(generation.submit, generation.prompt_ids)
    return generation


def random_ids(seed: int, num: int) -> list[int]:
    """Return a prompt of ordinary tokens. Prompts of two seeds have no common beginning."""
    ids: list[int] = np.random.default_rng(seed).integers(300, 2900, num).tolist()
    return ids


def generation_of(lane: Lane, ids: list[int], **values: Any) -> Generation:
    """Return a generation of a lane, which ends only at the maximum of tokens."""
    result = generation(ids, **values)
    result.submit = structs.replace(result.submit, ignore_eos=True, lane=lane)
    return result


def step(batch: Batch) -> list[FailedGeneration]:
    """Do a step, and add the new tokens to the generations, as the loop does."""
    result = batch.step()
    for new in result.generated:
        new.generation.tokens += new.token_ids
        new.generation.logprobs += new.logprobs
    return result.failed


def run(batch: Batch, *generations: Generation) -> list[FailedGeneration]:
    """Add all generations at once, and run each to its end."""
    for each in generations:
        assert batch.add(each) is None
    failed: list[FailedGeneration] = []
    while len(batch):
        failed += step(batch)
    return failed


def done(batch: Batch, one: Generation) -> Generation:
    assert run(batch, one) == []
    return one


def run_in_turn(batch: Batch, *generations: Generation) -> list[FailedGeneration]:
    """Run generations as the loop does: each is added as soon as it may join."""
    waiting, failed = list(generations), list[FailedGeneration]()
    while waiting or batch.has_work:
        while waiting and batch.has_free_slot and batch.may_join(waiting[0]):
            assert batch.add(waiting.pop(0)) is None
        failed += step(batch)
    return failed


def tokens_of(batch: Batch, *args: object, **values: object) -> list[int]:
    return done(batch, generation(*args, **values)).tokens  # type: ignore[arg-type]


class Loop:
    """The engine's loop without a socket and a process. Tests count turns, and no time.

    This class stands for the gateway's connection and for the server, too.
    """

    def __init__(self, pipeline: Pipeline, home: Path, **options: object) -> None:
        self.kind = TextEngine(config_of(TINY_CHAT, home, **options), pipeline)
        self.kind._grammars = cast("Any", NoChecks())
        self.loop = EngineLoop(self.kind)
        self.answers: dict[int, Answer] = {}
        self.ended: list[int] = []  # the ids of generations in the order of their ends
        self.loads: list[messages.Load] = []
        self._ids = count(1)

    # The methods that the loop calls

    def poll(self, _timeout_s: float) -> list[Incoming]:
        return []

    def send(self, message: messages.Accepted | messages.Rejected | messages.StepOutputs) -> None:
        updates = message.outputs if isinstance(message, messages.StepOutputs) else (message,)
        for each in updates:
            self.answers[each.id].take(each)
            if self.answers[each.id].is_over:
                self.ended.append(each.id)

    def broadcast(self, load: messages.Load) -> None:
        self.loads.append(load)

    # The methods that tests call

    def submit(self, prompt: str | list[int], **values: Any) -> int:
        """Submit a chat or ids. The engine generates as many tokens as it may. Returns the id."""
        id_ = next(self._ids)
        self.answers[id_] = Answer()
        defaults = {"sampling": Sampling(), "deadline_s": 600.0, "ignore_eos": True}
        ids = chat(prompt) if isinstance(prompt, str) else prompt
        prompt_ids = np.array(ids, dtype="<i4").tobytes()
        self._receive(messages.Submit(id_, prompt_ids, **{**defaults, **values}))
        return id_

    def grant(self, id_: int, num_tokens: int, *, is_last: bool = False) -> None:
        self._receive(messages.Grant(id_, num_tokens, is_last))

    def cancel(self, id_: int, num_used: int) -> None:
        self._receive(messages.Cancel(id_, num_used))

    def announce(self) -> None:
        self._receive(messages.Arriving())

    def turn(self) -> None:
        self.loop.turn(cast(SocketServer, self))

    def until(self, is_so: Callable[[], bool]) -> None:
        until(lambda: is_so() or self.turn(), pause_s=0.0)

    def finish(self, *ids: int) -> list[Answer]:
        self.until(lambda: all(self.answers[each].is_over for each in ids))
        return [self.answers[each] for each in ids]

    def ask(self, text: str, **values: Any) -> Answer:
        (answer,) = self.finish(self.submit(text, **values))
        return answer

    def num_generated(self, id_: int) -> int:
        """Count the tokens of a generation, sent or not."""
        alive = self.kind.requests.get((id(self), id_))
        return len(self.answers[id_].tokens) if alive is None else len(alive.tokens)

    def _receive(self, message: messages.ToEngine) -> None:
        self.loop.receive(Incoming(cast(Connection, self), message))


class NoChecks:
    """Stands for `GrammarChecks`: each grammar is good, and the step compiles it."""

    fullness = 0.0

    def tick(self) -> None:
        pass

    def has_room(self, *_: object) -> bool:
        return True

    def check(self, _: object, on_checked: Callable[[None], None], __: object) -> None:
        on_checked(None)


@contextmanager
def a_loop(pipeline: Pipeline, home: Path, **options: object) -> Iterator[Loop]:
    loop = Loop(pipeline, home, **options)
    yield loop
    loop.kind.disconnect(cast(Connection, loop))
    while pipeline.has_work:
        pipeline.step()
