"""Log lines as values: what a process has logged, and what native code has written between."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from vinery_serving.processes.logs.lines import in_one_line, json_line

LEVELS: Final = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")

_TIME: Final = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"
_TEXT: Final = re.compile(rf"({_TIME}) ({'|'.join(LEVELS)}) (\S+) (\S+): (.*)")
_IS_TIME: Final = re.compile(_TIME)
_NAMES: Final = ("time", "level", "process", "logger", "message")


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One event of a log."""

    time: str  # as `lines.time_text` writes it; "" if it is unknown
    level: str
    process: str
    logger: str
    message: str
    fields: Mapping[str, Any] = field(default_factory=dict)

    def text(self) -> str:
        """Return it as one line of text."""
        words = [self.message, *(f"{name}={value}" for name, value in self.fields.items())]
        message = in_one_line(" ".join(words))
        return f"{self.time} {self.level} {self.process} {self.logger}: {message}"

    def json(self) -> str:
        """Return it as one JSON object."""
        return json_line({**{name: getattr(self, name) for name in _NAMES}, **self.fields})


def read_entry(line: bytes) -> LogEntry | None:
    """Return the event of a line of either format; None for any other line."""
    text = line.decode(errors="replace")
    if text.startswith("{"):
        return _from_json(text)
    match = _TEXT.fullmatch(text)
    return None if match is None else _new_entry(match.groups())


def foreign_entry(line: bytes, time: str, process: str) -> LogEntry:
    """Return a line that no logger has written, such as a stack of a crash."""
    message = in_one_line(line.decode(errors="replace"))
    return LogEntry(time, "WARNING", process, "output", message)


def _from_json(text: str) -> LogEntry | None:
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):
        return None
    named = [values.pop(name, None) for name in _NAMES]
    if not all(isinstance(value, str) for value in named) or named[1] not in LEVELS:
        return None
    return _new_entry(named, values) if _IS_TIME.fullmatch(named[0]) else None


def _new_entry(named: Sequence[str], fields: Mapping[str, Any] | None = None) -> LogEntry:
    time, level, process, logger, message = map(in_one_line, named)
    return LogEntry(time, level, process, logger, message, fields or {})
