"""An engine process with a vision model: pictures over its socket, beside other requests."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from msgspec import structs

from tests.engine.conftest import TINY_VISION, Answer, Gateway, SharedEngine
from tests.engine.pictures import IMAGE, a_picture, a_plain_picture, a_submit, vision_model
from vinery_serving.core.errors import InvalidRequest
from vinery_serving.engine.vision import SquareGrid
from vinery_serving.transport.messages import LogitsSpec, LogprobsSpec, Submit

pytestmark = pytest.mark.live

ONE, OTHER = a_picture(1), a_picture(2)
QUESTION = f"What is it? {IMAGE}"


@pytest.fixture
async def gateway(shared_engine: SharedEngine) -> AsyncIterator[Gateway]:
    """The gateway of an engine with the vision model."""
    async with shared_engine(folder=TINY_VISION) as gateway:
        yield gateway


def a_question(gateway: Gateway, text: str, *pictures: Any, **values: Any) -> Submit:
    return structs.replace(a_submit(text, *pictures, **values), id=gateway.client.new_id())


async def first_logprob(gateway: Gateway, *pictures: Any) -> float:
    """The log-probability of the likeliest first token."""
    spec = LogitsSpec(logprobs=LogprobsSpec())
    submit = a_question(gateway, QUESTION, *pictures, max_new_tokens=1, logits=spec)
    (answer,) = await gateway.ask(submit)
    return answer.logprobs[0].logprob


@pytest.mark.smoke
async def test_pictures_reach_the_model_and_a_request_where_they_do_not_fit_fails_alone(gateway):
    # The first time computes the whole prompt, the others find it in the prefix cache.
    _, first, again = [await first_logprob(gateway, ONE) for _ in range(3)]
    _, other = [await first_logprob(gateway, OTHER) for _ in range(2)]

    assert gateway.client.hello.takes_pictures
    assert gateway.client.hello.supports_cache_salt
    assert again == pytest.approx(first, abs=1e-4)
    assert other != pytest.approx(first, abs=1e-3)

    stream_submit = a_question(gateway, "Hello", max_new_tokens=300)
    stream, answer = gateway.start(stream_submit), Answer()
    await gateway.read_until(stream, answer, 5)
    good = a_question(gateway, QUESTION, ONE)
    (media,) = good.media
    wrong = [
        (),
        (structs.replace(media, pixels=media.pixels[:-3]),),
        (structs.replace(media, pixels=media.pixels * 2),),
        (structs.replace(media, start=media.start + 1),),
        (structs.replace(media, height=28),),
        (media, media),
    ]
    answers = await gateway.ask(
        *(structs.replace(good, id=gateway.client.new_id(), media=each) for each in wrong)
    )
    (fine,) = await gateway.ask(good)
    await gateway.read_until(stream, answer, 300)

    for each in answers:
        assert each.rejection.code == InvalidRequest.code
    assert len(fine.tokens) == 8
    assert len(answer.tokens) == 300


async def test_many_pictures_are_answered_texts_pass_them_and_one_that_leaves_is_gone(gateway):
    streams = [a_question(gateway, "Hello", max_new_tokens=60, lane=(1, 1)) for _ in range(8)]
    plain = [a_plain_picture(at * 10, 4, 4) for at in range(16)]
    pictures = [a_question(gateway, QUESTION, each, lane=(2, at)) for at, each in enumerate(plain)]
    answers = await gateway.ask(*streams, *pictures)

    assert [len(each.tokens) for each in answers] == [60] * 8 + [8] * 16

    for at in range(8):
        submit = a_question(gateway, QUESTION, a_picture(at, 4, 4))
        stream = gateway.start(submit)
        if at % 2:
            await gateway.updates(stream)  # it is accepted, and may be encoded
        stream.cancel({submit.id: 0})
    stats = await gateway.stats_when_idle()
    (fine,) = await gateway.ask(a_question(gateway, QUESTION, ONE))

    assert stats.num_running == 0
    assert len(fine.tokens) == 8

    running, answer = a_question(gateway, "Hello", max_new_tokens=1500), Answer()
    stream = gateway.start(running)
    await gateway.read_until(stream, answer, 5)
    pictures = [a_question(gateway, QUESTION, a_picture(at)) for at in range(6)]
    text = a_question(gateway, "Hello", max_new_tokens=2)

    ended = await gateway.ids_before(gateway.start(*pictures, text), text)

    stream.cancel({each.id: 0 for each in (running, *pictures)})
    await gateway.stats_when_idle()
    assert len(ended) <= 2, "each picture waits for many steps of the stream"


def test_the_folder_is_read_as_the_gateway_reads_it() -> None:
    model = vision_model()
    assert (model.start_id, model.end_id, model.image_id, model.video_id) == (3, 4, 5, 6)
    assert isinstance(model.grid, SquareGrid)
    assert (model.grid.side, model.grid.least_pixels) == (28, 56 * 56)
