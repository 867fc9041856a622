"""The grammar checker: a process that says of each grammar whether it can be compiled.

`python -m serving.engine.checker MODEL_FOLDER VOCAB_SIZE` answers each framed `Check` on
its standard input with one framed `Checked` on its standard output, and begins with one
of its own when it is ready. It ends when its input does.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import msgspec

from serving.transport.framing import FrameReader, pack
from serving.transport.messages import GrammarSpec


class Check(msgspec.Struct, frozen=True, array_like=True):
    """A question."""

    grammar: GrammarSpec


class Checked(msgspec.Struct, frozen=True, array_like=True):
    """An answer. `refusal` None: it can be compiled."""

    refusal: str | None = None


def main(folder: Path, vocab_size: int) -> None:
    """Answer until the input ends."""
    from serving.engine.canary import Canary

    answers = os.dup(1)
    os.dup2(2, 1)  # whatever a library prints must not become an answer
    frames = FrameReader()
    with tempfile.TemporaryDirectory(prefix="vinery-canary-") as work_dir:
        canary = Canary(folder, vocab_size, Path(work_dir))
        os.write(answers, pack(Checked()))
        while received := os.read(0, 1 << 16):
            for frame in frames.feed(received):
                check = msgspec.msgpack.decode(frame, type=Check)
                os.write(answers, pack(Checked(canary.refusal(check.grammar))))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
