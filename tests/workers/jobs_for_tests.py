"""Jobs that behave well and badly."""

import os
import resource
import time
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from vinery_serving.core.errors import ContextTooLong, UnsupportedParameter
from vinery_serving.gateway.workers.worker import Session

_loaded: list[Any] = []


class Colour(StrEnum):
    RED = "red"


@dataclass(frozen=True, slots=True)
class Grape:
    name: str
    colour: Colour
    ids: tuple[int, ...] = ()


def load(wanted: Any) -> None:
    while wanted == "loop":
        pass
    _loaded[:] = wanted


def before_call(arguments: Any) -> None:
    """Nothing is needed."""


def _loop(session: Session, body: bytes) -> None:
    while True:
        pass


def _sleep(session: Session, body: bytes, duration_s: float) -> int:
    time.sleep(duration_s)
    return os.getpid()


def _grow(session: Session, body: bytes, num_mb: int) -> int:
    return len(bytearray(num_mb * 2**20))


def _remember(session: Session, body: bytes, key: str, value: Any) -> Any:
    previous = session.state.get(key)
    session.state[key] = value
    return previous


def _end(session: Session, body: bytes, marks: str, times: int, status: int) -> list[str]:
    """End the process the first `times` times: by a signal if the status is negative."""
    folder = Path(marks)
    if (num := len(list(folder.iterdir()))) < times:
        (folder / str(num)).mkdir()
        os.kill(os.getpid(), -status) if status < 0 else os._exit(status)
    return list(session.state)


def _refuse(session: Session, body: bytes) -> None:
    raise ContextTooLong(
        max_context=8, num_prompt_tokens=9, num_output_tokens=1, param="messages[1]"
    )


def _refuse_option(session: Session, body: bytes) -> None:
    raise UnsupportedParameter("Leave it out.", param="seed", code="no_seed")


JOBS = {
    "echo": lambda session, body, value: value,
    "size": lambda session, body: len(body),
    "pid": lambda session, body: os.getpid(),
    "environment": lambda session, body: dict(os.environ),
    "loaded": lambda session, body: list(_loaded),
    "files": lambda session, body: [str(each) for each in Path("/proc/self/fd").iterdir()],
    "limits": lambda session, body: resource.getrlimit(resource.RLIMIT_FSIZE),
    "loop": _loop,
    "sleep": _sleep,
    "grow": _grow,
    "remember": _remember,
    "refuse": _refuse,
    "refuse_option": _refuse_option,
    "fail": lambda session, body: 1 / len(body),
    "end": _end,
    "object": lambda session, body: object(),
}
RESULT_TYPES = (Colour, Grape)
