"""EAGLE-3 heads: the same text in fewer steps, with everything that works beside a draft model."""

from collections.abc import Iterator
from itertools import pairwise

import pytest

from tests.engine import in_process
from tests.engine.conftest import TINY_CHAT
from tests.engine.eagle_heads import write_head
from tests.tables import table
from vinery_serving.engine.batch import Batch
from vinery_serving.engine.kinds.text import TextEngine
from vinery_serving.engine.pipeline import Pipeline
from vinery_serving.transport.messages import LogitsSpec, LogprobsSpec

pytestmark = pytest.mark.live

QUESTIONS = ["Count to 12.", "What is the capital of France?", "Tell me a story.", "hello"]
LAYERS = (1, 2, 3)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Batch:
    return Batch(in_process.pipeline_of(TINY_CHAT, tmp_path_factory.mktemp("plain")), capacity=16)


@pytest.fixture(scope="module")
def expected(plain: Batch) -> list[list[int]]:
    return [in_process.tokens_of(plain, question, max_new_tokens=80) for question in QUESTIONS]


@pytest.fixture(scope="module")
def drafting(expected: list[list[int]], tmp_path_factory: pytest.TempPathFactory) -> Pipeline:
    """An engine with a head that knows which token mostly follows another in these answers."""
    home = tmp_path_factory.mktemp("eagle")
    following = {one: other for each in expected for one, other in pairwise(each)}
    head = write_head(home / "head", following, LAYERS)
    pipeline = in_process.pipeline_of(TINY_CHAT, home, eagle3_head=str(head))
    TextEngine(in_process.config_of(TINY_CHAT, home), pipeline).warm_up()
    return pipeline


@pytest.fixture
def batch(drafting: Pipeline) -> Iterator[Batch]:
    yield from in_process.emptied(drafting)


def test_it_has_the_hook_and_gives_the_same_texts_in_fewer_steps(batch, drafting, plain, expected):
    assert drafting.has_logits_hook
    assert drafting.speculates
    assert drafting.supports_cache_salt

    answers = [in_process.generation(question, max_new_tokens=80) for question in QUESTIONS]

    assert in_process.run(batch, *answers) == []

    assert [each.tokens for each in answers] == expected
    counted = answers[0]
    assert 0.4 * len(counted.tokens) < counted.num_accepted < counted.num_proposed

    spec = LogitsSpec(logprobs=LogprobsSpec(num_top=2), bias=((77, 2.0),))
    one, other = (in_process.generation("Count to 15.", spec) for _ in range(2))

    assert in_process.run(batch, one) == in_process.run(plain, other) == []

    in_process.assert_alike(one, other, 0.05)


@table(
    "layers, message",
    [((7, 8, 9), r"head .*head3 does not fit this model\. "), ((), "must be at least 10")],
)
def test_a_head_for_another_model_fails_to_load(tmp_path, layers, message):
    head = write_head(tmp_path / f"head{len(layers)}", {5: 6}, layers)
    with pytest.raises(RuntimeError, match=message):
        in_process.pipeline_of(TINY_CHAT, tmp_path, eagle3_head=str(head))
