"""Models of other vision families, as a user asks them about pictures with OpenAI's client."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any, NamedTuple

import openai
import pytest
from PIL import Image

from tests.conftest import Running
from tests.engine.family_models import FAMILIES, a_family_folder
from tests.shapes import data_url
from tests.system.clients import openai_of, serving

pytestmark = pytest.mark.system
NAME = "other-seer"
IMAGE_TOKENS = {  # of a picture of 300 x 300 pixels
    "gemma3": 16,
    "llava": 16,
    "llava_next": 16 + 8 * 9,
    "internvl_chat": 10 * 16,
}


class Seer(NamedTuple):
    family: str
    client: openai.OpenAI


@pytest.fixture(scope="module", params=list(FAMILIES))
def seer(
    request: pytest.FixtureRequest, running: Running, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Seer]:
    folder = a_family_folder(request.param, tmp_path_factory.mktemp(request.param) / "model")
    with serving(running, {NAME: [folder]}):
        yield Seer(request.param, openai_of(running))


def a_picture(*, is_light_above: bool = True) -> Any:
    file = io.BytesIO()
    image = Image.linear_gradient("L").resize((300, 300)).convert("RGB")
    (image.rotate(180) if is_light_above else image).save(file, "PNG")
    return {"type": "image_url", "image_url": {"url": data_url(file.getvalue())}}


def asked(seer: Seer, *parts: Any) -> Any:
    content = [{"type": "text", "text": each} if isinstance(each, str) else each for each in parts]
    messages: Any = [{"role": "user", "content": content}]
    return seer.client.chat.completions.create(
        model=NAME, messages=messages, max_tokens=4, temperature=0, logprobs=True
    )


def logprobs(answer: Any) -> list[float]:
    return [each.logprob for each in answer.choices[0].logprobs.content]


def test_the_tokens_of_pictures_are_counted(seer: Seer) -> None:
    for num_pictures in range(4):
        usage = asked(seer, "What is it?", *[a_picture()] * num_pictures).usage
        counted = getattr(usage.prompt_tokens_details, "image_tokens", None) or 0
        assert counted == num_pictures * IMAGE_TOKENS[seer.family]


def test_another_picture_has_another_answer(seer: Seer) -> None:
    one, other = (
        logprobs(asked(seer, a_picture(is_light_above=each), "What is it?"))
        for each in (True, False)
    )

    assert one != pytest.approx(other, abs=1e-2)


def test_a_second_question_about_a_picture_is_cheaper(seer: Seer) -> None:
    before = "Look closely at what is shown here before you answer any question: " * 2
    pictures = [a_picture()] * 3
    asked(seer, before, *pictures, "What is it?")
    usage = asked(seer, before, *pictures, "How large is it?").usage

    assert usage.prompt_tokens_details.cached_tokens > len(before)


def test_pictures_of_gemma_that_are_too_far_behind_are_refused(seer: Seer) -> None:
    if seer.family == "gemma3":
        with pytest.raises(openai.BadRequestError, match="first 1024 tokens"):
            asked(seer, "a" * 1500, a_picture(), "What is it?")
    else:
        assert asked(seer, "a" * 1500, a_picture(), "What is it?").usage.prompt_tokens > 1500
