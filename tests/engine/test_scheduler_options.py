"""Options of the scheduler, with the real engine: steps change, and texts do not."""

from pathlib import Path

import pytest

from tests.engine.in_process import LOGPROBS, generation, run, served
from vinery_serving.engine.batch import Batch
from vinery_serving.engine.logits_handler import StepView
from vinery_serving.engine.pipeline import Pipeline

pytestmark = pytest.mark.live

QUESTIONS = ["Count to 12.", "What is the capital of France?", "hello"]
FILLER = "Please remember this well. " * 60
UNCACHED = {"enable_prefix_caching": False}  # so that only running answers have memory


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("options")


@pytest.fixture(scope="module")
def plain(home: Path) -> Pipeline:
    return served(home, **UNCACHED)


def texts(pipeline: Pipeline, *questions: str) -> list[list[int]]:
    each = [generation(question) for question in questions or QUESTIONS]
    assert run(Batch(pipeline, capacity=16), *each) == []
    return [one.tokens for one in each]


def test_without_split_fuse_a_step_has_whole_prompts_or_decodes(home, plain, monkeypatch):
    whole = served(home, dynamic_split_fuse=False, max_num_batched_tokens=512, **UNCACHED)
    long = FILLER + "Count to 5."
    sizes: list[int] = []
    see = Batch._on_logits

    def note(batch: Batch, view: StepView) -> None:
        sizes.append(len(view.token_ids))
        see(batch, view)

    assert texts(whole, *QUESTIONS, long) == texts(plain, *QUESTIONS, long)
    monkeypatch.setattr(Batch, "_on_logits", note)
    batch = Batch(whole, capacity=16)
    first, second = generation("Count to 30.", LOGPROBS), generation(long, LOGPROBS)
    assert batch.add(first) is None
    batch.step()
    assert run(batch, second) == []
    assert sizes[:2] == [len(first.prompt_ids), len(second.prompt_ids)]
    assert set(sizes[2:]) == {2, 1}
