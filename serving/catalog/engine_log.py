"""The last log lines of a model's engine, for administrators."""

from pathlib import Path
from typing import Final

from django.conf import settings

from vinery_serving.logs.folder import engine_name, log_path
from vinery_serving.logs.reading import last_lines

NUM_LINES: Final = 50
# What pages show where there is no log.
NO_LOG: Final = (
    "No engine of this model has logged anything on this host. With several hosts, the log is on "
    "the host that runs the engine: vinery logs --model {model}"
)


def engine_log(model: str, num_lines: int = NUM_LINES) -> list[str] | None:
    """Return the last lines, the oldest first; None: this home has no log of the model."""
    path = log_path(Path(settings.VINERY_LOG_DIR), engine_name(model))
    try:
        return [entry.text() for entry in last_lines(path, num_lines)]
    except OSError:
        return None


def engine_log_text(model: str, num_lines: int = NUM_LINES) -> str:
    """Return the last lines as one text, or where to find them."""
    lines = engine_log(model, num_lines)
    return "\n".join(lines) if lines else NO_LOG.format(model=model)
