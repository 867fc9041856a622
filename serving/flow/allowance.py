"""How many tokens the answers to a request may have together, where somebody counts them."""

from __future__ import annotations

from typing import Protocol

# How much of an allowance is left, for each answer, when more is asked for: an answer that has
# to end can then still be told so in time. On a busy machine with limits on Redis, 64 were too
# few: an engine made up to 110 tokens too many.
AHEAD_PER_ANSWER = 128


class Allowance(Protocol):
    """Grows while a request runs, until there is no more."""

    @property
    def ask_at(self) -> int:
        """As many tokens as this may be made, all answers together, before more is asked for."""

    @property
    def ends_at(self) -> int | None:
        """As many tokens as there may be in all, once no more can be had; None before that."""

    async def extend(self) -> None:
        """Ask for more."""


def shares(num_left: int, num_made: dict[int, int]) -> dict[int, int]:
    """After how many tokens each answer has to end, when so many are left for all of them.

    `num_made` are those of the answers that are still being written, by their ids; what
    cannot be shared evenly goes to the first.
    """
    each, rest = divmod(max(0, num_left), len(num_made))
    return {
        id_: made + each + (number < rest) for number, (id_, made) in enumerate(num_made.items())
    }
