"""The paths of sockets, and the frames on them."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tables import table
from vinery_serving.core.request import Sampling
from vinery_serving.transport import sockets
from vinery_serving.transport.messages import (
    FromEngine,
    Rejected,
    StepOutputs,
    Submit,
    ToEngine,
    TokenOutput,
)
from vinery_serving.transport.sockets import FrameReader, InvalidFrame, pack

_KEY = "0123456789ab"
_ADDRESSES = sockets.EngineAddress(1, _KEY), sockets.EngineAddress(4_000_000_000, _KEY, 12)


@contextmanager
def a_folder(num_characters: int) -> Iterator[Path]:
    """A folder whose path has this length, if the system's temporary folder leaves room."""
    with tempfile.TemporaryDirectory() as beginning:
        path = Path(beginning, "x" * max(1, num_characters - len(beginning) - 1))
        path.mkdir(mode=0o700)
        yield path
        if (elsewhere := sockets.node_socket(path).parent) != path:
            shutil.rmtree(elsewhere)


@table("num_characters", range(55, 121))  # around that with which names of sockets are too long
def test_engines_are_found_where_they_listen(num_characters: int) -> None:
    with a_folder(num_characters) as run_dir:
        paths = {each: sockets.engine_socket(run_dir, each) for each in _ADDRESSES}
        for path in paths.values():
            path.touch()

        assert sockets.engine_sockets(run_dir) == paths
        assert len(str(sockets.node_socket(run_dir))) <= 103
        assert all(len(str(path)) <= 103 for path in paths.values())


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
    submit = Submit(7, b"\x01\x00\x00\x00", Sampling(top_p=0.5), 9, 1.5, (3, 4))
    outputs = StepOutputs((TokenOutput(7, (1, 2), "stop", 0.25, 32), TokenOutput(8, (5,))))
    assert msgspec.msgpack.decode(pack(submit)[4:], type=ToEngine) == submit
    assert msgspec.msgpack.decode(pack(outputs)[4:], type=FromEngine) == outputs

    with pytest.raises(InvalidFrame):
        FrameReader().feed(b"\x7f\xff\xff\xff")  # before it is kept
    wrong = msgspec.msgpack.encode(["Submit", "seven", b"", [], 1, 1.0])
    with pytest.raises(msgspec.ValidationError):
        msgspec.msgpack.decode(wrong, type=ToEngine)


def test_a_folder_that_others_may_use_or_that_a_link_names_is_refused() -> None:
    with a_folder(0) as real:
        link, open_ = real.with_name("link"), real.with_name("open")
        link.symlink_to(real)
        open_.mkdir()
        open_.chmod(0o750)
        assert sockets.node_socket(real) == real / "node.sock"
        for folder in (link, open_):
            with pytest.raises(PermissionError, match=f"{folder} must be a folder, not a link"):
                sockets.node_socket(folder)

    with a_folder(100) as long:
        elsewhere = sockets.node_socket(long).parent
        elsewhere.rmdir()
        elsewhere.symlink_to(long)
        with pytest.raises(PermissionError, match="not a link"):
            sockets.engine_socket(long, _ADDRESSES[0])
        elsewhere.unlink()
        sockets.node_socket(long)
