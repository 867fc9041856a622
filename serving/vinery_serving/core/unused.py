"""The parts of a request's body that take no effect."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Unused:
    """The parts of a body that take no effect, by their paths. A client may have sent any name."""

    unknown: tuple[str, ...] = ()  # fields that this server does not know: the first of them
    num_unknown: int = 0
    harmless: tuple[str, ...] = ()  # fields of other servers that could not change the answer
    hosted: tuple[str, ...] = ()  # features of OpenAI's service, such as `store`


NOTHING_UNUSED: Final = Unused()
