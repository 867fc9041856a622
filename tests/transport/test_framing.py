"""Frames survive every way in which a stream can be cut."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vinery_serving.transport.framing import FrameReader, InvalidFrame, pack
from vinery_serving.transport.messages import (
    FromEngine,
    Rejected,
    SamplingParams,
    StepOutputs,
    Submit,
    ToEngine,
    TokenOutput,
)


@given(st.lists(st.binary(max_size=40), max_size=8), st.lists(st.integers(1, 9)))
def test_frames_come_out_whole_wherever_they_are_cut(texts: list[bytes], cuts: list[int]) -> None:
    messages = [Rejected(at, "code", text.hex()) for at, text in enumerate(texts)]
    stream = b"".join(pack(message) for message in messages)

    reader, frames = FrameReader(), []
    for size in cuts:
        frames += reader.feed(stream[:size])
        stream = stream[size:]
    frames += reader.feed(stream)

    assert [msgspec.msgpack.decode(frame, type=FromEngine) for frame in frames] == messages


def test_messages_survive_the_wire_and_wrong_frames_are_refused() -> None:
    submit = Submit(7, b"\x01\x00\x00\x00", SamplingParams(top_p=0.5), 9, 1.5, (3, 4))
    outputs = StepOutputs((TokenOutput(7, (1, 2), "stop", 0.25, 32), TokenOutput(8, (5,))))
    assert msgspec.msgpack.decode(pack(submit)[4:], type=ToEngine) == submit
    assert msgspec.msgpack.decode(pack(outputs)[4:], type=FromEngine) == outputs

    with pytest.raises(InvalidFrame):
        FrameReader().feed(b"\x7f\xff\xff\xff")  # before it is kept
    wrong = msgspec.msgpack.encode(["Submit", "seven", b"", [], 1, 1.0])
    with pytest.raises(msgspec.ValidationError):
        msgspec.msgpack.decode(wrong, type=ToEngine)
