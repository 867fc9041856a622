"""The log lines of a model's engine and of its jobs, for administrators."""

from collections import deque
from itertools import islice
from pathlib import Path
from typing import Final

from django.conf import settings

from vinery_serving.logs.folder import engine_name, log_path
from vinery_serving.logs.reading import LogFollower, last_lines

NUM_LINES: Final = 50
# How many lines a page that follows a log gets at once.
NUM_FOLLOWED: Final = 500
# The rest of the file that was read, and what has come since in the newer ones.
_MOST_READS: Final = 3
# What pages show where there is no log.
NO_LOG: Final = (
    "No engine of this model has logged anything on this host. With several hosts, the log is on "
    "the host that runs the engine: vinery logs --model {model}"
)


def engine_log(model: str, num_lines: int = NUM_LINES) -> list[str] | None:
    """Return the last lines, the oldest first; None: this home has no log of the model."""
    try:
        return [entry.text() for entry in last_lines(engine_log_path(model), num_lines)]
    except OSError:
        return None


def engine_log_path(model: str) -> Path:
    return log_path(Path(settings.VINERY_LOG_DIR), engine_name(model))


def log_after(path: Path, position: str) -> tuple[list[str], str]:
    """Return the lines of a log after a position, the oldest first, and the next position. An
    empty position begins with the last lines."""
    try:
        if not position:
            return _last_lines_and_position(path)
        follower = LogFollower.after(path, position)
        try:
            lines: deque[str] = deque(maxlen=NUM_FOLLOWED)
            for _ in range(_MOST_READS):
                lines.extend(entry.text() for entry in follower.read())
            return list(lines), follower.position
        finally:
            follower.close()
    except OSError:
        return [], position


def _last_lines_and_position(path: Path) -> tuple[list[str], str]:
    """Raises OSError."""
    follower = LogFollower(path)
    try:
        entries = list(islice(follower.backwards(), NUM_FOLLOWED))
        return [entry.text() for entry in reversed(entries)], follower.position
    finally:
        follower.close()


def engine_log_text(model: str, num_lines: int = NUM_LINES) -> str:
    """Return the last lines as one text, or where to find them."""
    lines = engine_log(model, num_lines)
    return "\n".join(lines) if lines else NO_LOG.format(model=model)
