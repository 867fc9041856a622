"""The clock of all tests: only the test moves it."""

from datetime import UTC, datetime
from typing import Final

# A Wednesday, not quite at the start of a minute.
START_S: Final = 1_800_000_001.5


class FakeClock:
    """A function that returns seconds: Unix time, or any other."""

    def __init__(self, now_s: float = START_S) -> None:
        self.now_s = now_s

    def __call__(self) -> float:
        return self.now_s

    def pass_s(self, seconds: float) -> None:
        """Move the clock forward, or back by a negative number."""
        self.now_s += seconds

    def moment(self, offset_s: float = 0.0) -> datetime:
        """Return the time in UTC, or a time so many seconds later."""
        return datetime.fromtimestamp(self.now_s + offset_s, UTC)
