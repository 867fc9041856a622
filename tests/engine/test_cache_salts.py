"""Cache keys: prompts of different keys share no block of the prefix cache."""

from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.engine.conftest import TINY_CHAT, TINY_DRAFT, Gateway
from tests.engine.in_process import (
    BAD_GRAMMAR,
    config_of,
    done,
    emptied,
    generation,
    pipeline_of,
    run,
    tokens_of,
)
from tests.engine.test_logits_handler import LONG_PROMPT, SCORED, scores, searched
from tests.tables import table
from vinery_serving.core.request import BeamSearch, Sampling
from vinery_serving.engine.batch import Batch
from vinery_serving.engine.graph import GraphFeatures, _output
from vinery_serving.engine.kinds.text import TextEngine
from vinery_serving.engine.pipeline import Pipeline
from vinery_serving.engine.prefix_cache import salt_prompt

VOCAB_SIZES = st.integers(2, 300_000)
MAX_ID = 2**31 - 1
ALICE, BOB = (sha256(name).digest() for name in (b"alice", b"bob"))


def salts_in(vocab_size: int) -> int:
    return MAX_ID // vocab_size - 1


@given(VOCAB_SIZES, st.binary(min_size=32, max_size=32), st.data())
def test_a_salted_prompt_means_the_same_to_the_model(vocab_size, key, data):
    ids = data.draw(st.lists(st.integers(0, vocab_size - 1), min_size=1, max_size=50))
    prompt_ids = np.array(ids, np.int64)

    changed = salt_prompt(prompt_ids, key, vocab_size, salts_in(vocab_size))

    assert (changed % vocab_size).tolist() == ids == prompt_ids.tolist()
    assert changed.max() <= MAX_ID


@given(VOCAB_SIZES)
def test_the_first_tokens_carry_64_bits_of_the_key(vocab_size: int) -> None:
    num_salts = salts_in(vocab_size)
    changed = salt_prompt(np.zeros(500, np.int64), ALICE, vocab_size, num_salts)
    num_changed = int((changed != 0).sum())
    assert num_salts**num_changed >= 2**64 > num_salts ** (num_changed - 1)
    assert (changed[:num_changed] >= vocab_size).all()
    assert num_changed < 32, "a block has this many tokens"


@table("modulus, supports", [(0, False), (MAX_ID // 2, False), (9, True)])
def test_a_graph_with_a_single_salt_does_not_support_keys(modulus: int, supports: bool) -> None:
    pipeline = Pipeline.__new__(Pipeline)
    pipeline.has_cache = pipeline.has_logits_hook = True
    pipeline._graph = GraphFeatures(has_logits_hook=True, salt_modulus=modulus)
    assert pipeline.num_salts == (MAX_ID // modulus - 1 if modulus else 0)
    assert pipeline.supports_cache_salt == supports


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> Pipeline:
    # A dynamic cache would evict one prompt for the next.
    return pipeline_of(TINY_CHAT, tmp_path_factory.mktemp("engine"), cache_size_gb=1)


def num_cached(batch: Batch, prompt: list[int], key: bytes | None) -> int:
    return done(batch, generation(prompt, max_new_tokens=1, cache_key=key)).num_cached


@pytest.mark.live
@pytest.mark.smoke
def test_only_prompts_of_the_same_key_find_a_prompt_in_the_cache_also_after_a_failed_step(batch):
    prompt = [*LONG_PROMPT[100:], 9]
    keys = [None, ALICE, BOB]
    assert [num_cached(batch, prompt, key) for key in keys] == [0, 0, 0]
    assert all(num_cached(batch, prompt, key) > 400 for key in keys)

    sampling = Sampling(repetition_penalty=1.3)
    prompt = [*LONG_PROMPT[300:], 11]
    expected = tokens_of(batch, prompt, sampling=sampling)
    disturbed = generation(prompt, sampling=sampling, cache_key=BOB)
    batch.add(disturbed)
    bad = generation("hello", grammar=BAD_GRAMMAR)

    failed = run(batch, bad)

    assert [each.generation for each in failed] == [bad]
    assert disturbed.tokens == expected
    assert num_cached(batch, prompt, BOB) > 200
    assert num_cached(batch, prompt, ALICE) == 0


@pytest.mark.live
@pytest.mark.smoke
@table("prompt", [[12, 13], [12, 13, 14, 15, 16, 17]])
def test_only_prompts_of_the_same_key_find_an_answer_in_the_cache(batch, prompt):
    """The cache holds output tokens too, hashed together with their prompt."""
    sampling = Sampling(temperature=2.0, seed=5)
    first = done(batch, generation(prompt, sampling=sampling, max_new_tokens=70, cache_key=ALICE))
    assert len(first.tokens) == 70
    whole = [*prompt, *first.tokens, 14]

    assert [num_cached(batch, whole, key) for key in (None, BOB)] == [0, 0]
    is_long = len(prompt) > 4
    assert (num_cached(batch, whole, ALICE) > 64) == is_long


@pytest.mark.live
@table(
    "sampling",
    [
        Sampling(),
        Sampling(temperature=1.0, seed=3, top_p=0.9, top_k=20, min_p=0.02),
        Sampling(repetition_penalty=3.0),
        Sampling(repetition_penalty=0.5, temperature=0.7, seed=4),
        Sampling(frequency_penalty=1.5, presence_penalty=-0.5),
    ],
)
def test_a_cache_key_does_not_change_its_answer(batch: Batch, sampling: Sampling) -> None:
    for prompt in ("Count to 15.", "Tell me a story.", [77]):
        plain = tokens_of(batch, prompt, sampling=sampling)
        assert tokens_of(batch, prompt, sampling=sampling, cache_key=ALICE) == plain


@pytest.mark.live
def test_a_key_changes_neither_a_scored_prompt_nor_a_search_by_beams(batch: Batch) -> None:
    prompt = [*LONG_PROMPT[200:], 10]
    sampling = Sampling(repetition_penalty=2.0)
    plain = generation(prompt, SCORED, sampling=sampling, max_new_tokens=5)
    keyed = generation(prompt, SCORED, sampling=sampling, max_new_tokens=5, cache_key=ALICE)

    assert run(batch, plain, keyed) == []

    assert keyed.tokens == plain.tokens
    assert scores(keyed) == pytest.approx(scores(plain), abs=0.05)
    assert [num_cached(batch, prompt, key) for key in (None, ALICE)] == [0, 0]

    plain, keyed = (done(batch, searched("Count to 15.", cache_key=key)) for key in (None, ALICE))

    assert keyed.tokens == plain.tokens
    assert [one.tokens for one in keyed.other_beams] == [one.tokens for one in plain.other_beams]


@pytest.mark.live
@table("option", [{"draft_model": str(TINY_DRAFT)}, {"prompt_lookup": True}])
def test_a_prompt_with_a_key_may_have_drafts(option: dict[str, object], tmp_path: Path) -> None:
    pipeline = pipeline_of(TINY_CHAT, tmp_path, **option)
    assert pipeline.supports_cache_salt
    for batch in emptied(pipeline):
        for sampling in (
            Sampling(),
            Sampling(repetition_penalty=1.2),
            Sampling(frequency_penalty=0.2),
        ):
            plain, keyed = (
                done(batch, generation("Count to 30.", sampling=sampling, cache_key=key))
                for key in (None, ALICE)
            )
            assert keyed.tokens == plain.tokens
            assert (keyed.num_accepted > 0) == (plain.num_accepted > 0)


@pytest.mark.live
async def test_the_engine_applies_penalties_beside_keys_or_refuses_them(gateway: Gateway) -> None:
    sampling = Sampling(repetition_penalty=3.0)
    beams = BeamSearch(2, no_repeat_ngram_size=1)
    plain, keyed, unlike, refused = await gateway.ask(
        gateway.submit("Count to 15.", sampling=sampling),
        gateway.submit("Count to 15.", sampling=sampling, cache_key=ALICE),
        gateway.submit("Count to 15."),
        gateway.submit([77], beams=beams, cache_key=ALICE),
    )

    assert keyed.tokens == plain.tokens != unlike.tokens
    assert "does not work with a cache_salt" in refused.rejection.message


@pytest.mark.live
@pytest.mark.parametrize("is_exact", [True, False])
def test_a_graph_that_misreads_large_ids_is_not_given_any(is_exact, tmp_path, monkeypatch):
    if not is_exact:
        monkeypatch.setattr("vinery_serving.engine.graph._modulo", _inexact_modulo)
    pipeline = pipeline_of(TINY_CHAT, tmp_path)

    TextEngine(config_of(TINY_CHAT, tmp_path), pipeline).warm_up()

    assert pipeline.has_logits_hook
    assert (pipeline.can_score_prompts, pipeline.supports_cache_salt) == (is_exact, is_exact)


def _inexact_modulo(net: Any, ids: Any, rows: Any) -> Any:
    return _output(net.add("FloorMod", "opset1", [ids, rows], ids.port, auto_broadcast="numpy"))
