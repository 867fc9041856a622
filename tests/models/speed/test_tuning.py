"""The search for better options, with engines whose speed the test chooses."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest

from vinery_serving.models.jobs import JobDocument, JobFailed, Reporter
from vinery_serving.models.speed import tune
from vinery_serving.models.speed.bench import Answer, Engine, MeasurementFailed, Run
from vinery_serving.models.speed.tune import Tuner, knobs

Speed = Callable[[Mapping[str, Any]], float]


class SlowEngine:
    """Takes `took_s` for each run. The option KV precision decides the answers."""

    def __init__(self, options: Mapping[str, Any], took_s: float) -> None:
        self._took_s = took_s
        self._token = 7 if "KV_CACHE_PRECISION" in options.get("plugin", {}) else 1

    async def run(self, prompts: Sequence[Sequence[int]], num_tokens: int) -> Run:
        chunks = ((self._took_s, num_tokens),)
        answers = (
            Answer(len(each), (self._token_after(each),) * num_tokens, 0.0, chunks)
            for each in prompts
        )
        return Run(tuple(answers))

    def _token_after(self, prompt: Sequence[int]) -> int:
        return self._token


def tuner(took_s: Speed, **changes: Any) -> Tuner:
    @asynccontextmanager
    async def start(options: Mapping[str, Any]) -> AsyncIterator[Engine]:
        yield cast("Engine", SlowEngine(options, took_s(options)))

    values: dict[str, Any] = {
        "start": start,
        "encode": lambda text: list(text.encode()),
        "present": {"plugin": {"A": 1}},
        "device": "CPU",
        "is_vision": False,
        "allows_other_answers": False,
        "time_limit_s": 60.0,
        "report": lambda _: None,
    }
    return Tuner(**{**values, **changes})


def took_s(options: Mapping[str, Any]) -> float:
    """Prompt lookup and large steps are quicker, and so is another KV precision."""
    plugin = options.get("plugin", {})
    quicker = 1.0
    quicker *= 1.5 if options.get("prompt_lookup") else 1
    quicker *= 1.2 if options.get("max_num_batched_tokens") == 1024 else 1
    quicker *= 2.0 if plugin.get("KV_CACHE_PRECISION") == "f16" else 1
    return 1 / quicker


async def test_the_best_value_is_kept_and_one_that_changes_answers_only_if_it_may() -> None:
    found = await tuner(took_s).run()
    wanted = {"plugin": {"A": 1}, "prompt_lookup": True, "max_num_batched_tokens": 1024}
    assert found.best == wanted
    assert found.best_gain == pytest.approx(1.8, abs=0.01)
    assert found.is_complete
    kept = [each.what for each in found.trials if each.is_kept]
    assert kept == ["1024 tokens in a step", "prompt lookup"]

    other = next(each for each in found.trials if each.what == "KV precision f16")
    assert (other.same_answers, other.is_kept) == (0, False)
    assert other.gain == pytest.approx(3.6, abs=0.01)
    found = await tuner(took_s, allows_other_answers=True).run()
    assert found.best["plugin"] == {"A": 1, "KV_CACHE_PRECISION": "f16"}


async def test_a_turn_after_another_answer_is_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    def token_after(self: SlowEngine, prompt: Sequence[int]) -> int:
        """Only the second of three turns differs, and so only the first two are compared."""
        is_second = 120 < len(prompt) < 220
        return self._token if is_second else 1

    monkeypatch.setattr(SlowEngine, "_token_after", token_after)
    found = await tuner(took_s).run()

    (u8,) = [each for each in found.trials if each.what == "KV precision u8"]
    assert u8.same_answers == 0.5


async def test_each_trial_is_reported_also_if_it_does_not_load_and_none_is_too_late() -> None:
    stages: list[str] = []
    found = await tuner(took_s, report=stages.append).run()
    trials = enumerate(found.trials, start=1)
    assert stages[1:] == [f"trial {number}: {each.what}" for number, each in trials]

    found = await tuner(took_s, time_limit_s=0.0).run()
    assert found.trials == ()
    assert not found.is_complete

    def fails(options: Mapping[str, Any]) -> float:
        if options.get("prompt_lookup"):
            raise MeasurementFailed("It needs a tokenizer.")
        return took_s(options)

    found = await tuner(fails).run()
    lookup = next(each for each in found.trials if each.what == "prompt lookup")
    assert (lookup.gain, lookup.error) == (None, "It needs a tokenizer.")
    assert found.best["max_num_batched_tokens"] == 1024


async def test_small_or_contradicted_gains_do_not_change_options() -> None:
    def a_little(options: Mapping[str, Any]) -> float:
        return 0.99 if options.get("prompt_lookup") else 1.0

    found = await tuner(a_little).run()
    assert found.best == found.present

    # Such as when other programs use the processor.
    rounds = iter([1.0] + [0.2, 0.2, 3.0, 3.0] * 1000)

    class Unsteady(SlowEngine):
        async def run(self, prompts: Sequence[Sequence[int]], num_tokens: int) -> Run:
            self._took_s = next(rounds)
            return await super().run(prompts, num_tokens)

    @asynccontextmanager
    async def start(options: Mapping[str, Any]) -> AsyncIterator[Engine]:
        kind = Unsteady if options.get("prompt_lookup") else SlowEngine
        yield cast("Engine", kind(options, 1.0))

    found = await tuner(took_s, start=start).run()
    assert found.best == found.present


def test_settings_that_a_model_or_device_lacks_are_not_tried() -> None:
    def tried(options: Mapping[str, Any], **changes: Any) -> set[str]:
        about = {"device": "CPU", "is_vision": False, **changes}
        return {
            name
            for values in knobs(options, **about)
            for change in values
            for name in (change.options.get("plugin") or change.options)
        }

    assert "prompt_lookup" in tried({})
    assert "prompt_lookup" not in tried({}, is_vision=True)
    assert "prompt_lookup" not in tried({"draft_model": "/d"})
    assert tried({}, device="GPU").isdisjoint({"num_threads", "DYNAMIC_QUANTIZATION_GROUP_SIZE"})
    assert "enable_prefix_caching" in tried({"enable_prefix_caching": False})


def test_trials_that_do_not_fit_are_refused(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tune.psutil, "virtual_memory", lambda: SimpleNamespace(available=2**20))
    parameters = {"folder": str(tmp_path), "device": "CPU", "options": {}, "time_limit_s": 10}
    names = {"kind": "tune", "job_id": 1, "node_pid": 0, "model": "m", "home": tmp_path}
    document = JobDocument(**names, parameters={**parameters, "max_context": 0})
    with pytest.raises(JobFailed, match=r"Trials need 0\.8 GB of memory for 2 engines"):
        tune.run(document, Reporter())
