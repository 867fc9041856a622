"""Jobs that behave well and badly."""

import contextlib
import os
import resource
import time
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from tests.gateway.workers import attacks
from tests.gateway.workers.attacks import Targets
from vinery_serving.core.errors import ContextTooLong, UnsupportedParameter
from vinery_serving.gateway.workers.worker import Codec, Session

_loaded: list[Any] = []


class Colour(StrEnum):
    RED = "red"


@dataclass(frozen=True, slots=True)
class Grape:
    name: str
    colour: Colour
    ids: tuple[int, ...] = ()


def load(wanted: Any) -> None:
    _loaded[:] = wanted


def before_call(arguments: Any) -> None:
    """Nothing is needed."""


def loop(session: Session) -> None:
    while True:
        pass


def sleep(session: Session, duration_s: float) -> int:
    time.sleep(duration_s)
    return os.getpid()


def grow(session: Session, num_mb: int) -> int:
    return len(bytearray(num_mb * 2**20))


def remember(session: Session, key: str, value: Any) -> Any:
    previous = session.state.get(key)
    session.state[key] = value
    return previous


def end(session: Session, status: int) -> None:
    """End the process: by a signal if the status is negative."""
    os.kill(os.getpid(), -status) if status < 0 else os._exit(status)


def refuse(session: Session) -> None:
    raise ContextTooLong(
        max_context=8, num_prompt_tokens=9, num_output_tokens=1, param="messages[1]"
    )


def refuse_option(session: Session) -> None:
    raise UnsupportedParameter("Leave it out.", param="seed", code="no_seed")


def echo(session: Session, value: Any) -> Any:
    return value


def size(session: Session) -> int:
    return len(session.body)


def pid(session: Session) -> int:
    return os.getpid()


def environment(session: Session) -> dict[str, str]:
    return dict(os.environ)


def loaded(session: Session) -> list[Any]:
    return list(_loaded)


def files(session: Session) -> list[str]:
    descriptors = range(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    return [str(each) for each in descriptors if _is_open(each)]


def _is_open(descriptor: int) -> bool:
    with contextlib.suppress(OSError):
        os.fstat(descriptor)
        return True
    return False


def limits(session: Session) -> tuple[int, int]:
    return resource.getrlimit(resource.RLIMIT_FSIZE)


def attack(session: Session, name: str, to: Targets) -> bool:
    return attacks.succeeds(name, to)


def fail(session: Session) -> float:
    return 1 / len(session.body)


def foreign(session: Session) -> object:
    return object()


CODEC = Codec((Colour, Grape))
