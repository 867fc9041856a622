"""An engine process with a vision model: pictures over its socket, beside other requests."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from msgspec import structs

from tests.engine.conftest import TINY_VISION, Answer, Gateway, SharedEngine
from tests.engine.pictures import IMAGE, a_picture, a_submit
from vinery_serving.core.errors import InvalidRequest
from vinery_serving.transport.messages import Submit

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


@pytest.mark.smoke
async def test_a_request_whose_pictures_do_not_fit_fails_alone(gateway):
    assert gateway.client.hello.takes_pictures
    assert gateway.client.hello.supports_cache_salt
    stream_submit = a_question(gateway, "Hello", max_new_tokens=300)
    stream, answer = gateway.start(stream_submit), Answer()
    await gateway.read_until(stream, answer, 5)
    good = a_question(gateway, QUESTION, ONE)
    (media,) = good.media
    wrong = [
        (),
        (structs.replace(media, pixels=media.pixels[:-3]),),
        (structs.replace(media, start=media.start + 1),),
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


async def test_texts_pass_pictures_and_one_that_leaves_is_gone(gateway):
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
