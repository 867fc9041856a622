"""What happened while a URL or file was fetched, step by step, for the tester of media rules."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum


class StepKind(StrEnum):
    RULE = "rule"  # a level's rule that allows the URL or file
    ADDRESSES = "addresses"  # of the host, all of which are allowed
    REDIRECT = "redirect"  # to the next URL, which is checked like the first
    RESPONSE = "response"  # status and type
    BYTES = "bytes"  # the file was read
    DENIED = "denied"  # by the rules
    FAILED = "failed"  # for another reason


@dataclass(frozen=True, slots=True)
class Step:
    """One line of the tester. `text` has no query of a URL."""

    kind: StepKind
    text: str
    level: str = ""  # of a rule or denial: "platform", "organization" or "project"
    rule_id: int | None = None


Observe = Callable[[Step], None]


def ignore(step: Step) -> None:
    """Requests are not observed."""
