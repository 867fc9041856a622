"""How long a node waits before it starts a model's engine again."""

from typing import Final

# The delay doubles while engines end soon after their start.
_FIRST_S: Final = 0.1
_STABLE_AFTER_S: Final = 3.0
# Of engines that could not load, which tries the disk and the processor in vain.
_MAX_S: Final = 15.0
# Of engines that had loaded: streams wait for the next one, and their requests are limited by the
# quarantine.
_MAX_OF_LOADED_S: Final = 0.5


class Backoff:
    """The delays of one model."""

    def __init__(self) -> None:
        self._next_s = _FIRST_S

    def after(self, lived_s: float, *, has_loaded: bool) -> float:
        """Return the delay after an engine that has lived so long, in seconds."""
        if lived_s > _STABLE_AFTER_S:
            self._next_s = _FIRST_S
        delay_s = min(self._next_s, _MAX_OF_LOADED_S if has_loaded else _MAX_S)
        self._next_s = min(delay_s * 2, _MAX_S)
        return delay_s
