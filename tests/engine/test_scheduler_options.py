"""Options of the scheduler, with the real engine: steps change, and texts do not."""

from pathlib import Path

import pytest

from tests.engine.conftest import TINY_DRAFT
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


def test_a_draft_model_may_have_its_own_device_and_cache(home: Path, plain: Pipeline) -> None:
    drafting = served(
        home,
        **UNCACHED,
        draft_model=str(TINY_DRAFT),
        draft_device="CPU",
        draft_scheduler={"cache_size_gb": 1, "max_num_batched_tokens": 64},
    )

    def num_steps(pipeline: Pipeline) -> int:
        batch = Batch(pipeline, capacity=16)
        assert batch.add(generation("Count to 30.")) is None
        num = 0
        while len(batch):
            batch.step()
            num += 1
        return num

    assert texts(drafting) == texts(plain)
    assert num_steps(drafting) < 0.8 * num_steps(plain)
