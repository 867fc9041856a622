"""A vision model's pipeline with pictures: each answer is to its own pictures."""

from pathlib import Path

import numpy as np
import pytest
from msgspec import structs

from tests.engine import in_process
from tests.engine.conftest import TINY_VISION
from tests.engine.pictures import (
    IMAGE,
    VIDEO,
    a_picture,
    a_plain_picture,
    a_submit,
    a_video,
    asked,
    generation_of,
    tokenizer,
    vision_model,
)
from tests.tables import table
from vinery_serving.core.request import BeamSearch, Sampling
from vinery_serving.engine.batch import Batch
from vinery_serving.engine.generation import Generation
from vinery_serving.engine.pipeline import Pipeline
from vinery_serving.transport import messages

pytestmark = pytest.mark.live

ONE, OTHER = a_picture(1), a_picture(2)
LONG = "Look closely at what is shown here, and then answer me: "
QUESTION = f"What is it? {IMAGE}"
KEY = bytes(range(32))


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> Pipeline:
    """With memory for all prompts of these tests: otherwise the prefix cache forgets them."""
    return in_process.pipeline_of(TINY_VISION, tmp_path_factory.mktemp("vision"), cache_size_gb=1)


def answered(batch: Batch, text: str, *pictures: np.ndarray, **values: object) -> Generation:
    return in_process.done(
        batch, asked(text, *pictures, **{"logits": in_process.LOGPROBS, **values})
    )


@pytest.mark.smoke
def test_pictures_and_videos_do_not_mix_side_by_side_in_a_block_or_in_a_failed_step(batch):
    """Each has the answer that it has alone, so the step's rows are matched rightly."""
    asks = [
        ("Hello", ()),
        (QUESTION, (ONE,)),
        (f"{LONG}{IMAGE}{IMAGE}", (a_picture(3, 4, 4), a_picture(4, 3, 2))),
        (f"What moves? {VIDEO}", (a_video(5),)),
        (f"{VIDEO} and {IMAGE}", (a_video(6, 3), OTHER)),
    ]
    alone = [answered(batch, text, *media) for text, media in asks]
    together = [asked(text, *media, logits=in_process.LOGPROBS) for text, media in asks]

    assert in_process.run(batch, *together) == []

    for one, beside in zip(alone, together, strict=True):
        in_process.assert_alike(beside, one)

    # The others are added again: their pictures are encoded once more.
    alone = [answered(batch, QUESTION, each) for each in (ONE, OTHER)]
    asks = [asked(QUESTION, each, logits=in_process.LOGPROBS) for each in (ONE, OTHER)]
    guilty = asked(IMAGE, ONE, grammar=in_process.BAD_GRAMMAR)

    failed = in_process.run(batch, *asks, guilty)

    assert [each.generation for each in failed] == [guilty]
    assert batch.num_recoveries
    for one, beside in zip(alone, asks, strict=True):
        in_process.assert_alike(beside, one)


def test_other_pictures_are_other_prompts_and_those_go_on_after_any_tokens(batch: Batch) -> None:
    video = a_video()
    forward = answered(batch, f"What moves? {VIDEO}", video)
    backward = answered(batch, f"What moves? {VIDEO}", video[::-1])
    assert in_process.logprobs(forward) != pytest.approx(in_process.logprobs(backward), abs=1e-2)

    # Both pictures have the same embeddings, but other positions.
    text = f"{IMAGE}{LONG}"
    wide = answered(batch, text, a_plain_picture(200, 2, 8))
    tall = answered(batch, text, a_plain_picture(200, 8, 2))
    assert wide.submit.media[0].num_tokens == tall.submit.media[0].num_tokens == 16
    assert tall.num_cached == 0

    # GenAI takes text, in which these tokens could have been others.
    whole = answered(batch, QUESTION, ONE, max_new_tokens=12)
    known = np.array(whole.tokens[:5], "<i4").tobytes()
    submit = a_submit(QUESTION, ONE, max_new_tokens=12)

    rest = generation_of(structs.replace(submit, known=messages.Known(known, is_replayed=False)))

    assert in_process.done(batch, rest).tokens == whole.tokens

    # An encoding may take longer than the engine may be silent.
    heard: list[int] = []
    batch.on_encoding = lambda: heard.append(len(batch))

    answered(batch, "Hello")
    assert heard == []
    answered(batch, QUESTION, ONE)
    assert heard == [0]


# The prefix cache


def test_a_prompt_that_leaves_half_prefilled_spoils_no_other(tmp_path: Path) -> None:
    small = in_process.pipeline_of(
        TINY_VISION, tmp_path, max_num_batched_tokens=16, cache_size_gb=1
    )
    text, picture = f"{LONG}{IMAGE}{LONG}?", a_picture(21, 4, 4)
    for _ in in_process.emptied(small):
        batch = Batch(small, capacity=16, num_step_tokens=16)
        leaving = asked(text, picture, logits=in_process.LOGPROBS)
        assert batch.add(leaving) is None
        batch.step()
        batch.step()
        batch.remove(leaving)
        after = answered(batch, text, picture)
        undisturbed = answered(batch, text, picture, cache_key=KEY)

    in_process.assert_alike(after, undisturbed, 2e-3)


# Logits and sampling


def test_logits_and_samples_are_decided_by_the_request(batch: Batch) -> None:
    spec = messages.LogitsSpec(allowed_ids=(300,))
    assert set(answered(batch, QUESTION, ONE, logits=spec).tokens) == {300}

    # GenAI does not know the prompt's tokens.
    sampling = Sampling(repetition_penalty=1e6)

    each = answered(batch, f"{LONG}{IMAGE}", ONE, sampling=sampling, max_new_tokens=20)

    assert not set(each.tokens) & set(each.prompt_ids.tolist())
    assert len(set(each.tokens)) == 20

    grammar = messages.GrammarSpec("regex", "(yes|no)")
    each = answered(batch, QUESTION, ONE, grammar=grammar, ignore_eos=False, max_new_tokens=20)
    assert tokenizer().decode(each.tokens, skip_special_tokens=True) in ("yes", "no")

    each = in_process.done(batch, asked(QUESTION, ONE, beams=BeamSearch(2), other_ids=(2,)))

    assert each.tokens
    assert each.other_beams[0].tokens
    assert each.tokens != each.other_beams[0].tokens


# Refusals


def check(submit: messages.Submit, *media: messages.MediaInput) -> None:
    vision_model().check(np.frombuffer(submit.prompt_ids, "<i4").astype(np.int64), media)


@pytest.mark.smoke
def test_a_prompt_with_other_pictures_or_a_video_behind_one_is_refused() -> None:
    submit = a_submit(f"{IMAGE}{IMAGE}", ONE, OTHER)
    check(submit, *submit.media)
    for media in ((), submit.media[:1], submit.media[::-1]):
        with pytest.raises(ValueError, match="picture"):
            check(submit, *media)

    # GenAI 2026.4.1 gives it the positions of the picture.
    submit = a_submit(f"{IMAGE}{VIDEO}", ONE, a_video())
    with pytest.raises(ValueError, match="Videos must come before pictures"):
        check(submit, *submit.media)


@table("option", [{"draft_model": "/x"}, {"prompt_lookup": True}])
def test_a_vision_model_takes_no_draft_tokens(option: dict[str, object], tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="draft_model, eagle3_head and prompt_lookup"):
        in_process.pipeline_of(TINY_VISION, tmp_path, **option)
