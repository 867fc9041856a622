"""Gemma 3, LLaVA, LLaVA-NeXT, InternVL and Qwen 2 VL in GenAI's pipeline: small models."""

import math
from pathlib import Path

import openvino as ov
import openvino_genai as genai
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from tests.engine.conftest import TINY_VISION
from tests.engine.family_models import (
    FAMILIES,
    Pixels,
    a_family_folder,
    a_fitted_picture,
    a_prompt,
    fitted_size,
    noise,
    with_media,
)
from tests.engine.in_process import assert_alike, done, emptied, logprobs, pipeline_of, run, step
from tests.examples import examples
from tests.tables import table
from vinery_serving.core.media import Detail
from vinery_serving.engine.arrival import check_submit
from vinery_serving.engine.generation import Generation
from vinery_serving.engine.picture_test import PictureTests
from vinery_serving.engine.pipeline import Pipeline
from vinery_serving.engine.vision import VisionModel

LONG = "Look closely at what is shown here, and then answer me in a word or two: "
pytestmark = pytest.mark.live

KEY, OTHER_KEY = bytes(range(32)), bytes(range(1, 33))
SHARED = settings(
    max_examples=examples(10),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@pytest.fixture(scope="module", params=[*FAMILIES, "qwen2_vl"])
def pipeline(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pipeline:
    """With memory for all prompts of these tests: otherwise the prefix cache forgets them."""
    home = tmp_path_factory.mktemp(request.param)
    is_random = request.param in FAMILIES
    folder = a_family_folder(request.param, home / "model") if is_random else TINY_VISION
    return pipeline_of(folder, home, cache_size_gb=1)


@pytest.fixture(scope="module")
def gemma(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return a_family_folder("gemma3", tmp_path_factory.mktemp("gemma") / "model")


@pytest.fixture
def model(pipeline: Pipeline) -> VisionModel:
    return pipeline.vision


def test_pictures_are_counted_look_different_and_are_refused_in_other_sizes(batch, model, pipeline):
    assert pipeline.has_logits_hook
    assert pipeline.supports_cache_salt
    assert not pipeline.can_score_prompts

    one, other = a_fitted_picture(model, 1), a_fitted_picture(model, 2, 300, 40)
    for parts in (("Hi", one, one, "?"), ("Hi", one, "or", other, "?"), ("Hi",)):
        each = done(batch, a_prompt(model, *parts))
        assert each.handle.num_prompt_tokens == len(each.prompt_ids)

    tests = PictureTests(model, batch)
    tests.begin(math.inf)
    while tests.is_running:
        tests.join()
        step(batch)

    assert tests.newest.failure == ""

    each = a_prompt(model, "What? ", a_fitted_picture(model, 1), "!")
    media = each.submit.media[0]

    model.check(each.prompt_ids, each.submit.media)
    for changes in (
        {"height": media.height + 7, "width": media.width + 7},
        {"grid": (1, 1, media.num_tokens + 1)},
        {"grid": (1, 2, media.num_tokens)},
        {"grid": (0, 1, media.num_tokens)},
        {"start": media.start - 1},
        {"start": 10_000},
        {"start": 0},
        {"width": media.width + 7},
        {"num_frames": 2},
        {"num_frames": -2},
    ):
        with pytest.raises(ValueError, match=r"picture|video"):
            model.check(each.prompt_ids, with_media(each, **changes))
    for wrong in ((), each.submit.media * 2):
        with pytest.raises(ValueError, match="picture"):
            model.check(each.prompt_ids, wrong)


@SHARED
@given(
    width=st.integers(1, 2000),
    height=st.integers(1, 2000),
    detail=st.sampled_from(Detail),
    max_pixels=st.sampled_from((3_000, 7_000, 20_000, 100_000)),
)
def test_genai_counts_the_same_tokens(batch, model, width, height, detail, max_pixels):
    size = fitted_size(model, width, height, detail, max_pixels)
    each = done(batch, a_prompt(model, "a", noise(0, *size), "b", max_new_tokens=1))
    assert each.handle.num_prompt_tokens == len(each.prompt_ids)


@table("family", FAMILIES)
def test_answers_are_those_of_genai_with_the_folders_tokens(family: str, tmp_path: Path) -> None:
    """The engine gives it coded ids, and leaves out the line breaks that GenAI adds."""
    folder = a_family_folder(family, tmp_path / family)
    pipeline = pipeline_of(folder, tmp_path, cache_size_gb=1)
    model = pipeline.vision
    picture = a_fitted_picture(model, 1)
    added = {"gemma3": ("\n\n", "\n\n"), "internvl_chat": ("", "")}.get(family, ("", "\n"))
    before, behind = (ids_of(folder, text) for text in ("Look " + added[0], added[1] + "What?"))
    for batch in emptied(pipeline):
        ours = done(batch, a_prompt(model, before, picture, behind))

    num_tokens, tokens, values = genai_answer(folder, f"Look {model.texts.shown}What?", picture)

    assert num_tokens == len(ours.prompt_ids)
    assert tokens == ours.tokens
    assert values == pytest.approx(logprobs(ours), abs=2e-3)


def ids_of(folder: Path, text: str) -> list[int]:
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    return list(tokenizer.encode(text, add_special_tokens=False).ids)


def genai_answer(folder: Path, text: str, picture: Pixels) -> tuple[int, list[int], list[float]]:
    """Return the number of prompt tokens, and the answer's tokens and log-probabilities."""
    scheduler = genai.SchedulerConfig()
    scheduler.cache_size = 1
    properties = {
        "INFERENCE_NUM_THREADS": 1,
        "ENABLE_CPU_PINNING": False,
        "INFERENCE_PRECISION_HINT": "f32",
    }
    pipeline = genai.ContinuousBatchingPipeline(str(folder), scheduler, "CPU", properties)
    config = genai.GenerationConfig()
    config.max_new_tokens, config.ignore_eos, config.logprobs = 6, True, 1
    config.apply_chat_template = False
    handle = pipeline.add_request(1, text, [ov.Tensor(picture)], [], config)
    while pipeline.has_non_finished_requests():
        pipeline.step()
    (output,) = handle.read_all()
    num_tokens = int(handle.get_perf_metrics().get_num_input_tokens())
    return num_tokens, list(output.generated_ids), list(output.generated_log_probs)


@pytest.mark.smoke
def test_answers_follow_pictures_and_order_and_a_second_question_reuses_them(batch, model):
    def of(*parts: str | Pixels) -> Generation:
        return done(batch, a_prompt(model, *parts))

    one, other = a_fitted_picture(model, 1), a_fitted_picture(model, 2)
    first, again, another = (of("What? ", each, "!") for each in (one, one, other))
    forward = of("Which ", one, " or ", other, "?")
    backward = of("Which ", other, " or ", one, "?")

    assert_alike(again, first)
    assert logprobs(another) != pytest.approx(logprobs(first), abs=1e-2)
    assert logprobs(forward) != pytest.approx(logprobs(backward), abs=1e-2)

    # Each has the answer that it has alone, so the step's rows are matched rightly.
    one, wide = a_fitted_picture(model, 1), a_fitted_picture(model, 2, 300, 40)
    asks: list[tuple[str | Pixels, ...]] = [
        ("Hello",),
        ("What? ", one, "!"),
        (LONG, one, wide, "?"),
        ("Which ", wide, "and", one),
    ]
    alone = [done(batch, a_prompt(model, *parts)) for parts in asks]
    together = [a_prompt(model, *parts) for parts in asks]

    assert run(batch, *together) == []

    for each, beside in zip(alone, together, strict=True):
        assert_alike(beside, each)

    one, other = (a_fitted_picture(model, seed, 300, 300) for seed in (3, 4))
    done(batch, a_prompt(model, LONG, one, one, one, one, "What?"))

    again = done(batch, a_prompt(model, LONG, one, one, one, one, "And how large?"))
    another = done(batch, a_prompt(model, LONG, other, one, one, one, "And how large?"))

    start, end = again.submit.media[0].start, again.submit.media[3].start
    assert again.num_cached >= end // 32 * 32 > start
    assert another.num_cached <= start


@table("has_picture", [True, False])
def test_keys_do_not_share_cached_tokens_and_answer_alike(batch, model, has_picture):
    shown = [a_fitted_picture(model, 5)] if has_picture else []
    first, other, none, again = (
        done(batch, a_prompt(model, f"{has_picture}: {LONG}", *shown, "What?", cache_key=key))
        for key in (KEY, OTHER_KEY, None, KEY)
    )

    assert first.num_cached == other.num_cached == none.num_cached == 0
    assert again.num_cached
    for each in (other, none, again):
        assert_alike(each, first, 5e-3)


# Gemma 3: the tokens of a picture attend to later tokens of the picture


def test_a_picture_is_computed_in_one_step_or_refused(gemma: Path, tmp_path: Path) -> None:
    """GenAI divides prompts where a step is full: then half of a picture would not see the rest."""
    small = pipeline_of(gemma, tmp_path, max_num_batched_tokens=8, cache_size_gb=1, plugin={})
    model = small.vision
    parts = (LONG, a_fitted_picture(model, 1), "!")
    for batch in emptied(small):
        alone = done(batch, a_prompt(model, *parts, cache_key=KEY))
        texts = [a_prompt(model, f"{at}" * 900, max_new_tokens=2) for at in "12"]
        beside = a_prompt(model, *parts, cache_key=OTHER_KEY)
        for text in texts:
            assert batch.add(text) is None
        assert not batch.may_join(beside)
        while not batch.may_join(beside):
            batch.step()
        assert run(batch, beside) == []

    assert small.max_step_tokens == 2048
    assert beside.num_cached == 0
    assert_alike(beside, alone, 2e-3)

    pipeline = pipeline_of(gemma, tmp_path)
    model = pipeline.vision
    picture = a_fitted_picture(model, 1)
    early = a_prompt(model, "a", picture, "b" * 1500)
    late = a_prompt(model, "a" * 1500, picture, "b")

    check_submit(early.submit, early.prompt_ids, pipeline, 2048)
    with pytest.raises(ValueError, match="first 1024 tokens"):
        check_submit(late.submit, late.prompt_ids, pipeline, 2048)
