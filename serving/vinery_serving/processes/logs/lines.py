"""The format of log lines: one line for each event, as text or as JSON.

    2026-01-31T12:00:00.000Z INFO web-1 vinery_serving.gateway.recording.record: request status=200
    {"time": "2026-01-31T12:00:00.000Z", "level": "INFO", "process": "web-1", ...}

A log call gives values by name: `log.info("request", extra={"fields": {"status": 200}})`. Those
that are None are omitted.

Our code logs no prompts, answers or keys. As a last line of defence, this module masks keys in the
messages of libraries, and omits messages of exceptions that requests can cause: they may quote a
prompt.
"""

from __future__ import annotations

import json
import logging
import re
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final

# What is masked, with a part in lower case: a search for it takes a tenth of the pattern's time.
_SECRETS: Final = (
    # A key's short form, which pages show, has fewer characters behind its prefix.
    ("vny_", re.compile(r"vny_[A-Za-z0-9]+_[A-Za-z0-9]{6,}"), "vny_***"),
    ("bearer", re.compile(r"(?i)\b(bearer\s+)[A-Za-z0-9._~+/=-]+"), r"\1***"),
    # Django logs the path of a request that fails, and then a link to set a password stays valid.
    ("/key/", re.compile(r"(/password/reset/key/)[A-Za-z0-9-]+"), r"\1***"),
)
_PLAIN_VALUE: Final = re.compile(r"[^\s\"'=]+")
_MAX_CHARACTERS: Final = 4000
_MAX_FRAMES: Final = 12
# The exceptions that these log may quote what a client has sent.
_OF_REQUESTS: Final = (
    *("asyncio", "daphne", "django.request", "uvicorn"),
    *("vinery_serving.engine", "vinery_serving.gateway"),
)


class LineFormatter(logging.Formatter):
    """Formats a record as text. A traceback becomes `Error: message (at a.py:1 f < ...)`.
    Control characters are escaped: a terminal that shows the log would obey them."""

    def __init__(self, process: str) -> None:
        super().__init__()
        self.process = process

    def format(self, record: logging.LogRecord) -> str:
        message = " ".join([_message(record), *map(_assignment, _fields(record).items())])
        if record.exc_info and record.exc_info[1]:
            error, stack = _error(record.name, record.exc_info[1], record.exc_info[2])
            message = f"{message} | {error} (at {stack})"
        name = f"{time_text(record.created)} {record.levelname} {self.process} {record.name}"
        return f"{name}: {in_one_line(message)}"


class JsonFormatter(LineFormatter):
    """Formats a record as an object of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        values: dict[str, object] = {
            "time": time_text(record.created),
            "level": record.levelname,
            "process": self.process,
            "logger": record.name,
            "message": " ".join(_message(record).split()),
        }
        for name, value in _fields(record).items():
            values.setdefault(name, value)
        if record.exc_info and record.exc_info[1]:
            values["error"], values["stack"] = _error(
                record.name, record.exc_info[1], record.exc_info[2]
            )
        return json_line(values)


def json_line(values: Mapping[str, Any]) -> str:
    short = {name: _cut(each) if isinstance(each, str) else each for name, each in values.items()}
    return masked(json.dumps(short, default=str))


def in_one_line(text: str) -> str:
    """Return a text as one line of bounded length, without control characters and keys."""
    line = _cut(masked(" ".join(text.split())))
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in line
    )


def masked(text: str) -> str:
    """Return the text without API keys, bearer tokens and links to set a password."""
    lower = text.lower()
    for part, pattern, instead in _SECRETS:
        if part in lower:
            text = pattern.sub(instead, text)
    return text


def time_text(seconds: float) -> str:
    """Return a time as in log lines. Such texts sort by time."""
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
    return f"{whole}.{int(seconds % 1 * 1000):03d}Z"


def _message(record: logging.LogRecord) -> str:
    message = record.getMessage()
    # asyncio adds the task, with the text of the exception, in further lines.
    return message.partition("\n")[0] if record.name == "asyncio" else message


def _fields(record: logging.LogRecord) -> dict[str, object]:
    given: dict[str, object] = getattr(record, "fields", {})
    return {name: value for name, value in given.items() if value is not None}


def _assignment(field: tuple[str, object]) -> str:
    """`name=value`. A value that could be read as several is quoted."""
    name, value = field
    text = str(value)
    return f"{name}={text if _PLAIN_VALUE.fullmatch(text) else json.dumps(text)}"


def _error(logger: str, error: BaseException, trace: TracebackType | None) -> tuple[str, str]:
    """The error, and its stack with the innermost frame first."""
    frames = traceback.extract_tb(trace)[-_MAX_FRAMES:]
    stack = (f"{frame.filename}:{frame.lineno} {frame.name}" for frame in reversed(frames))
    name = type(error).__name__
    text = name if logger.startswith(_OF_REQUESTS) else f"{name}: {error}"
    return text, " < ".join(stack)


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_CHARACTERS else f"{text[:_MAX_CHARACTERS]}..."


# -- Reading

LEVELS: Final = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")

_TIME: Final = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"
_TEXT: Final = re.compile(rf"({_TIME}) ({'|'.join(LEVELS)}) (\S+) (\S+): (.*)")
_IS_TIME: Final = re.compile(_TIME)
_NAMES: Final = ("time", "level", "process", "logger", "message")


@dataclass(frozen=True, slots=True)
class LogEntry:
    time: str  # as `lines.time_text` writes it; "" if unknown
    level: str
    process: str
    logger: str
    message: str
    fields: Mapping[str, Any] = field(default_factory=dict)

    def text(self) -> str:
        words = [self.message, *(f"{name}={value}" for name, value in self.fields.items())]
        message = in_one_line(" ".join(words))
        return f"{self.time} {self.level} {self.process} {self.logger}: {message}"

    def json(self) -> str:
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
