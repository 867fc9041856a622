"""A gateway that reads later than the engine sends gets joined outputs."""

from typing import Any, cast

from vinery_serving.transport.client import OutputStream
from vinery_serving.transport.messages import Accepted, Rejected, TokenLogprobs, TokenOutput


def stream_of(*ids: int) -> OutputStream:
    return OutputStream(cast(Any, None), ids)


async def test_outputs_that_have_come_meanwhile_are_one_for_each_generation() -> None:
    stream = stream_of(1)
    logprobs = [(TokenLogprobs(-number, 1),) for number in range(3)]
    stream.put(Accepted(1), is_end=False)
    stream.put(TokenOutput(1, (10,), None, 0.1, 0.2, 5, logprobs[0]), is_end=False)
    stream.put(TokenOutput(1, (11, 12), logprobs=logprobs[1] + logprobs[1]), is_end=False)
    last = TokenOutput(1, (13,), "stop", None, None, None, logprobs[2], None, 4, 2)
    stream.put(last, is_end=True)

    accepted, joined = await stream.next()

    assert accepted == Accepted(1)
    assert joined == TokenOutput(
        1,
        (10, 11, 12, 13),
        "stop",
        queue_s=0.1,
        prefill_s=0.2,
        num_cached_tokens=5,
        logprobs=(*logprobs[0], *logprobs[1], *logprobs[1], *logprobs[2]),
        num_proposed=4,
        num_accepted=2,
    )

    stream = stream_of(1, 2, 3)
    for id_, token_id in ((1, 10), (2, 20), (1, 11), (2, 21), (3, 30)):
        stream.put(TokenOutput(id_, (token_id,)), is_end=False)
    joined = ((1, (10, 11)), (2, (20, 21)), (3, (30,)))
    assert await stream.next() == [TokenOutput(*each) for each in joined]

    stream, rejected = stream_of(1, 2), Rejected(2, "", "no room")
    stream.put(TokenOutput(1, (10,)), is_end=False)
    stream.put(rejected, is_end=True)
    stream.put(TokenOutput(1, (11,)), is_end=False)
    assert await stream.next() == [TokenOutput(1, (10,)), rejected, TokenOutput(1, (11,))]
