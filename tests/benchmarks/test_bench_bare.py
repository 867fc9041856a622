"""The bare engine answers from a process of its own."""

from pathlib import Path

import pytest

from benchmarks.bare import BareEngine
from benchmarks.prompts import PromptSource, counting
from vinery_serving.engine.options import EngineOptions

pytestmark = pytest.mark.live

TINY_CHAT = Path(__file__).resolve().parents[2] / "models" / "tiny-chat"
OPTIONS = EngineOptions(num_threads=1)


def test_it_answers_many_prompts_at_once_with_one_chunk_a_token_and_then_others() -> None:
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


def test_a_folder_without_a_model_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(EOFError), BareEngine(tmp_path, OPTIONS):
        pass
