"""Gateways and engines of adjacent versions understand each other."""

from pathlib import Path
from typing import Any

import msgspec

from vinery_serving.transport.messages import PROTOCOL_VERSION, FromEngine, ToEngine, speaks_with

FRAMES = Path(__file__).parents[1] / "golden" / "protocol_16.txt"


def begins_as(present: Any, former: Any) -> bool:
    """Whether lists only have more members at their ends, and objects more members."""
    if isinstance(former, dict):
        return all(begins_as(present.get(name), each) for name, each in former.items())
    if isinstance(former, list):
        return len(present) >= len(former) and all(map(begins_as, present, former))
    return bool(present == former)


def test_frames_of_the_first_compatible_version_mean_what_they_meant() -> None:
    kinds = set()
    for line in FRAMES.read_text().splitlines():
        name, _, text = line.partition(" ")
        frame = bytes.fromhex(text)
        message = msgspec.msgpack.decode(frame, type=ToEngine | FromEngine)
        assert type(message).__name__ == name
        kinds.add(type(message))
        again = msgspec.msgpack.decode(msgspec.msgpack.encode(message))
        assert begins_as(again, msgspec.msgpack.decode(frame)), name
    assert len(kinds) == 18


def test_only_adjacent_versions_are_understood() -> None:
    assert speaks_with(PROTOCOL_VERSION)
    assert speaks_with(PROTOCOL_VERSION + 1)
    assert not speaks_with(PROTOCOL_VERSION + 2)
    assert not speaks_with(15)  # whose fields had another order
