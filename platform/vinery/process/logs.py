"""Logging: one line for each event, on standard error, with the name of the process.

    2026-01-31T12:00:00.000Z INFO web-1 vinery_accounts.keys.lifecycle: key revoked

Our code logs no prompts, answers or keys. As a last line of defence, this module masks keys in the
messages of libraries.
"""

import logging
import os
import re
import time
import traceback
from collections.abc import Callable
from types import TracebackType
from typing import Any

from vinery.config import env

PROCESS_VARIABLE = "VINERY_PROCESS"
_LEVELS = ("debug", "info", "warning", "error")

_KEY = re.compile(r"vny_[A-Za-z0-9]+_[A-Za-z0-9]+")
_VERBOSE = ("asyncio", "celery", "daphne", "kombu", "uvicorn")
_MAX_CHARACTERS = 4000
_MAX_FRAMES = 12
# Django logs an error with a traceback for each request with an unknown host, among others.
_OF_CLIENTS = "django.security"
_MAX_OF_CLIENTS = 10
_CLIENTS_INTERVAL_S = 10.0


class LineFormatter(logging.Formatter):
    """Formats a record as one line; a traceback becomes `Error: message (at a.py:1 f < ...)`.
    Control characters are escaped: a terminal that shows the log would obey them."""

    def __init__(self, process: str) -> None:
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        message = record.getMessage()
        if record.exc_info and record.exc_info[1]:
            message = f"{message} | {_error(record.exc_info[1], record.exc_info[2])}"
        line = _KEY.sub("vny_***", " ".join(message.split()))
        if len(line) > _MAX_CHARACTERS:
            line = f"{line[:_MAX_CHARACTERS]}..."
        if not line.isprintable():
            line = "".join(map(_escaped, line))
        seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        stamp = f"{seconds}.{int(record.msecs):03d}Z"
        return f"{stamp} {record.levelname} {self._process} {record.name}: {line}"


class ClientRecordLimit(logging.Filter):
    """Passes a few records of every 10 s that clients without a key can cause, and all others."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` returns seconds."""
        super().__init__()
        self._clock = clock
        self._began_at_s = -_CLIENTS_INTERVAL_S
        self._num_passed = 0

    def filter(self, record: logging.LogRecord) -> bool:
        if not record.name.startswith(_OF_CLIENTS):
            return True
        now_s = self._clock()
        if now_s - self._began_at_s >= _CLIENTS_INTERVAL_S:
            self._began_at_s, self._num_passed = now_s, 0
        self._num_passed += 1
        return self._num_passed <= _MAX_OF_CLIENTS


def level_from_env() -> str:
    """VINERY_LOG_LEVEL in upper case. Raises `SettingError` for an unknown one."""
    return env.choice("VINERY_LOG_LEVEL", "info", among=_LEVELS).upper()


def logging_config(level: str) -> dict[str, Any]:
    """The configuration for `logging.config.dictConfig` and Django's LOGGING."""
    process = os.environ.get(PROCESS_VARIABLE, "vinery")
    quiet = max(level, "WARNING", key=logging.getLevelNamesMapping().__getitem__)
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"line": {"()": LineFormatter, "process": process}},
        "filters": {"clients": {"()": ClientRecordLimit}},
        "handlers": {
            "stderr": {
                "class": "logging.StreamHandler",
                "formatter": "line",
                "filters": ["clients"],
            }
        },
        "root": {"handlers": ["stderr"], "level": level},
        "loggers": {
            # These libraries log every step of a start, a stop or a schedule.
            **{name: {"level": quiet} for name in _VERBOSE},
            # Django's default configuration gives these their own handlers.
            "django": {"handlers": [], "level": level},
            "django.server": {"handlers": [], "level": quiet, "propagate": True},
            # It logs every 404 as a warning; metrics count requests.
            "django.request": {"level": "ERROR"},
        },
    }


def _escaped(letter: str) -> str:
    return letter if letter.isprintable() else letter.encode("unicode_escape").decode()


def _error(error: BaseException, trace: TracebackType | None) -> str:
    """The error and its stack, the innermost frame first."""
    frames = traceback.extract_tb(trace)[-_MAX_FRAMES:]
    stack = (f"{frame.filename}:{frame.lineno} {frame.name}" for frame in reversed(frames))
    return f"{type(error).__name__}: {error} (at {' < '.join(stack)})"
