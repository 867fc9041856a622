"""What reads the calls after one opening tag, and how far it is."""

from __future__ import annotations

from enum import Enum
from typing import Protocol

from serving.output.parse_events import Piece


class CallState(Enum):
    """How far the reader is."""

    OPEN = "open"
    ENDED = "ended"
    BROKEN = "broken"  # what was read last is no call at all


class CallReader(Protocol):
    """Reads one call, or all calls of one opening tag.

    Nothing of a call is told before it is sure to be one, so that text which is no call can
    be given back unchanged.
    """

    @property
    def state(self) -> CallState:
        """Not to be fed any more once this is not OPEN."""

    @property
    def rest(self) -> str:
        """The text that follows, once the state is not OPEN."""

    @property
    def untold(self) -> str:
        """The text since the last call that may turn out to be none: to be given back when
        the state is BROKEN, or when the text ends."""

    def feed(self, text: str) -> list[Piece]:
        """The pieces that more text makes."""

    def finish(self) -> list[Piece]:
        """The text is over. A call that is cut inside its arguments stays open."""
