"""What a check of `vinery doctor` has found."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    OK = "ok"
    WARNING = "warning"  # it works, with less than it could
    FAILURE = "failure"  # it does not work


@dataclass(frozen=True, slots=True)
class Finding:
    """`cure` is what to do about it; "" if nothing is to be done."""

    check: str
    level: Level
    text: str
    cure: str = ""


Check = Callable[[], Iterator[Finding]]


def ok(check: str, text: str) -> Finding:
    return Finding(check, Level.OK, text)


def warning(check: str, text: str, cure: str) -> Finding:
    return Finding(check, Level.WARNING, text, cure)


def failure(check: str, text: str, cure: str) -> Finding:
    return Finding(check, Level.FAILURE, text, cure)
