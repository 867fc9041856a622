"""A vision model is shown known pictures, when it loads and by a message, beside requests."""

import asyncio

import pytest

from tests.engine.conftest import TIMEOUT_S, TINY_VISION, Answer, Gateway
from tests.engine.test_pictures_process import a_question
from tests.prepared_home import EXACT
from tests.tables import table
from vinery_serving.engine.picture_test import failure_of
from vinery_serving.transport.client import EngineDisconnected

RED, BLUE = (7, -0.5), (9, -0.5)
NUM_TOKENS = 150
ALIKE = "Some different pictures look alike to the model"
UNSTABLE = "The same picture looks different twice"


@table(
    "seen, failure",
    [
        ({"red": [RED, RED], "blue": [BLUE, BLUE]}, ""),
        ({"red": [RED, (7, -0.53)], "blue": [BLUE, BLUE]}, ""),
        ({"red": [RED, RED], "blue": [(7, -0.7)] * 2}, ""),
        ({"red": [RED, RED], "blue": [RED, RED]}, f"{ALIKE}: red and blue."),
        ({"red": [RED, BLUE], "blue": [BLUE, BLUE]}, f"{UNSTABLE}: red."),
        ({"red": [RED, (7, -0.6)], "blue": [BLUE, BLUE]}, f"{UNSTABLE}: red."),
    ],
)
def test_pictures_must_differ_from_each_other_and_not_from_themselves(seen, failure):
    assert failure_of(seen) == failure


async def answered(gateway: Gateway, *, is_tested: bool) -> Answer:
    """The answer of a stream, perhaps beside two picture tests at once."""
    submit = a_question(gateway, "Hello", max_new_tokens=NUM_TOKENS, ignore_eos=True)
    stream, answer = gateway.start(submit), Answer()
    await gateway.read_until(stream, answer, 5)
    tests = [gateway.client.test_pictures(TIMEOUT_S) for _ in range(2 if is_tested else 0)]
    results = asyncio.gather(*tests)
    await gateway.read_until(stream, answer, NUM_TOKENS)
    assert not any(await results)
    return answer


@pytest.mark.live
async def test_a_stream_is_the_same_beside_a_test_and_a_text_model_has_none(shared_engine, gateway):
    # In bf16 the text depends on what else is in the batch.
    async with shared_engine(folder=TINY_VISION, **EXACT) as vision:
        calm = await answered(vision, is_tested=False)
        tested = await answered(vision, is_tested=True)
    assert tested.tokens == calm.tokens
    assert tested.finish == calm.finish is not None

    assert "takes text only" in await gateway.client.test_pictures(TIMEOUT_S)


@pytest.mark.live
async def test_a_test_waits_for_a_slot_and_none_waits_for_an_engine_that_ends(start_engine):
    async with start_engine(folder=TINY_VISION, max_running=1) as gateway:
        questions = [a_question(gateway, "Hello", max_new_tokens=20) for _ in range(3)]
        stream = gateway.start(*questions)
        failure = await gateway.client.test_pictures(TIMEOUT_S)
        answers = await gateway.finish(stream, *questions)

        stream = gateway.start(a_question(gateway, "Hello", max_new_tokens=1000, ignore_eos=True))
        await gateway.read_until(stream, Answer(), 1)
        testing = asyncio.ensure_future(gateway.client.test_pictures(TIMEOUT_S))
        await gateway.stats()
        await gateway.process.end()
        with pytest.raises(EngineDisconnected):
            await testing

    assert failure == ""
    assert all(answer.finish for answer in answers)
