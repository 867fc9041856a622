"""How long a node waits before it starts a model's engine again, and when it no longer tries.

An engine that had loaded is started again for as long as the model should be loaded. A model that
cannot load is tried a few times. It then stays failed until its files or its settings change, or
an administrator asks to try again.
"""

from collections.abc import Mapping
from enum import Enum, auto
from typing import Final

# The delay doubles while engines that had loaded end soon after their start. Streams wait for the
# next engine, and their requests are limited by the quarantine.
_FIRST_S: Final = 0.1
_MAX_S: Final = 0.5
_STABLE_AFTER_S: Final = 3.0


class FailureKind(Enum):
    """Why a model did not load, as far as it matters for the next attempt."""

    FINAL = auto()  # files, options or a device: another attempt ends in the same way
    PASSING = auto()  # memory or disk that may be free later, and what is unknown
    KILLED = auto()  # a signal ended the engine; the model is not the cause


# The pauses between attempts, in seconds.
_PAUSES_S: Final[Mapping[FailureKind, tuple[float, ...]]] = {
    FailureKind.FINAL: (),
    FailureKind.PASSING: (1.0, 5.0, 20.0),
    FailureKind.KILLED: (0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8),
}


class Backoff:
    """The delays between the engines of one model that had loaded."""

    def __init__(self) -> None:
        self._next_s = _FIRST_S

    def after(self, lived_s: float) -> float:
        """Return the delay after an engine that has lived so long, in seconds."""
        if lived_s > _STABLE_AFTER_S:
            self._next_s = _FIRST_S
        delay_s, self._next_s = self._next_s, min(self._next_s * 2, _MAX_S)
        return delay_s


class LoadAttempts:
    """One series of attempts to load a model."""

    def __init__(self) -> None:
        self.num_failed = 0
        self.max = 0  # attempts in all, by the last failure; 0 before the first one

    def pause_after(self, kind: FailureKind) -> float | None:
        """Count a failed attempt. Returns the pause before the next one in seconds; None: there is
        none."""
        pauses = _PAUSES_S[kind]
        self.num_failed += 1
        self.max = max(self.num_failed, len(pauses) + 1)
        return pauses[self.num_failed - 1] if self.num_failed <= len(pauses) else None
