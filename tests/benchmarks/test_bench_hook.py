"""The bare engine, with the logits hook and without, for every use of the hook."""

from pathlib import Path

import pytest

from benchmarks.bare import BareEngine
from benchmarks.hook import OFF, USES, uses
from benchmarks.hook_batches import Batches
from benchmarks.prompts import PromptSource, counting
from vinery_serving.engine.logits_handler import LogitsHandler
from vinery_serving.engine.options import EngineOptions
from vinery_serving.transport.messages import LogitsSpec

TINY_CHAT = Path(__file__).resolve().parents[2] / "models" / "tiny-chat"
OPTIONS = EngineOptions(num_threads=1)


def test_one_of_one_stream_is_not_measured_twice() -> None:
    assert len(list(uses(1))) == len(USES) - 1
    assert list(uses(2)) == list(USES)
    assert USES[OFF] == (None, None)


@pytest.mark.live
def test_only_streams_with_a_use_are_handled_and_all_batches_take_as_many_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    handled: list[LogitsSpec] = []
    handle = LogitsHandler.handle

    def note(handler: LogitsHandler, *arguments: object) -> None:
        handled.append(handler._spec)
        handle(handler, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(LogitsHandler, "handle", note)
    batches = Batches(TINY_CHAT, OPTIONS)
    spec = USES["1000 allowed"][0]
    assert spec is not None

    assert all(len(times) > 0 for times in batches.step_times([None, None], round_s=0))
    assert not handled
    times = batches.step_times([spec, None], round_s=0)

    assert len({len(each) for each in times}) == 1
    assert set(handled) == {spec}
    assert len(handled) >= len(times.with_s)


@pytest.mark.live
def test_it_answers_many_prompts_token_by_token_but_not_without_a_model(tmp_path: Path) -> None:
    source = PromptSource(TINY_CHAT, counting)
    prompts = source.take(4)

    with BareEngine(TINY_CHAT, OPTIONS) as bare:
        run = bare.run(prompts, max_tokens=24)
        texts = [bare.run(source.take(1), max_tokens=8).streams[0].text for _ in range(2)]

    assert [stream.num_tokens for stream in run.streams] == [24] * 4
    assert {len(stream.chunks_s) for stream in run.streams} == {24}
    assert all(stream.text.startswith("1 2 3 4 5") for stream in run.streams)
    assert [stream.num_prompt_tokens for stream in run.streams] == [len(p.ids) for p in prompts]
    assert len(set(texts)) == 1

    with pytest.raises(EOFError), BareEngine(tmp_path, OPTIONS):
        pass
