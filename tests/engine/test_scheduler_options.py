"""Options of the cache and the scheduler, with the real engine: what changes and what not."""

from pathlib import Path

import pytest

from tests.engine.conftest import TINY_DRAFT
from tests.engine.in_process import LOGPROBS, done, generation, generation_of, logprobs, run, served
from tests.tables import table
from vinery_serving.engine.batch import Batch
from vinery_serving.engine.logits_hook import StepView
from vinery_serving.engine.pipeline import Pipeline

pytestmark = pytest.mark.live

QUESTIONS = ["Count to 12.", "What is the capital of France?", "hello"]
FILLER = "Please remember this well. " * 60
# In tokens, of which tiny-chat has 32 in a block.
EVICTION = {"start_size": 32, "recent_size": 64, "max_cache_size": 192}
UNCACHED = {"enable_prefix_caching": False}  # so that only running answers have memory


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("options")


@pytest.fixture(scope="module")
def plain(home: Path) -> Pipeline:
    return served(home, **UNCACHED)


@pytest.fixture(scope="module")
def plain_bytes(plain: Pipeline) -> int:
    return peak_bytes(plain)


def texts(pipeline: Pipeline, *questions: str) -> list[list[int]]:
    each = [generation(question) for question in questions or QUESTIONS]
    assert run(Batch(pipeline, capacity=16), *each) == []
    return [one.tokens for one in each]


def peak_bytes(pipeline: Pipeline, num_tokens: int = 250) -> int:
    """Return the largest KV cache while four answers of this length are generated."""
    answers = [generation_of((1, at), [4, 5, 6 + at], max_new_tokens=num_tokens) for at in range(4)]
    assert run(Batch(pipeline, capacity=16), *answers) == []
    assert [len(each.tokens) for each in answers] == [num_tokens] * 4
    return int(pipeline._pipeline.get_metrics().kv_cache_size_in_bytes)


def likelihoods(pipeline: Pipeline, question: str) -> list[float]:
    asked = generation(question, LOGPROBS, max_new_tokens=12)
    return logprobs(done(Batch(pipeline, capacity=16), asked))


@table(
    "options, least, most",
    [
        ({"cache_eviction": {**EVICTION, "recent_size": 32, "max_cache_size": 96}}, 0.0, 0.7),
        ({"kv_cache_precision": "u8"}, 0.5, 0.7),
        ({"kv_cache_precision": "f32"}, 1.9, 2.1),
    ],
)
def test_its_cache_changes_and_short_answers_do_not(home, plain, plain_bytes, options, least, most):
    other = served(home, **UNCACHED, **options)
    assert texts(other) == texts(plain)
    assert least < peak_bytes(other) / plain_bytes < most


@table(
    "sparse",
    [
        {"num_start_tokens": 32, "num_recent_tokens": 32, "num_last_dense_tokens": 1},
        {"mode": "xattention", "threshold": 0.1, "block_size": 32, "num_last_dense_tokens": 1},
    ],
)
def test_sparse_attention_changes_long_prompts_only(home, plain, sparse):
    sparsely = served(home, sparse_attention=sparse)
    long = f"{FILLER} My name is Ann. {FILLER} What is my name?"
    assert texts(sparsely) == texts(plain)
    assert likelihoods(sparsely, long) != pytest.approx(likelihoods(plain, long), abs=1e-3)


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
