"""Logging: one line for each event, on standard output and in a file of the process.

    2026-01-31T12:00:00.000Z INFO web-1 vinery_accounts.keys.lifecycle: key revoked

Commands that print a result log to standard error, and to no file. `vinery_serving/processes/logs`
has the format of the lines and the files.
"""

import faulthandler
import functools
import logging
import logging.config
import os
import select
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from vinery_platform.config import env
from vinery_platform.config.home import Home
from vinery_serving.processes.logs.file import LogBounds, LogFile, log_path
from vinery_serving.processes.logs.lines import JsonFormatter, LineFormatter, LogEntry

PROCESS_VARIABLE: Final = "VINERY_PROCESS"
_OWN: Final = ("vinery_platform", "vinery_accounts", "vinery_serving")
_VERBOSE: Final = ("asyncio", "celery", "daphne", "kombu", "uvicorn")
_OF_CLIENTS: Final = ("django.security", "vinery_platform.web.errors")
_MAX_OF_CLIENTS: Final = 10
_CLIENTS_INTERVAL_S: Final = 10.0
_STDOUT: Final = 1
_MAX_QUEUED_BYTES: Final = 1 << 20
# A killed process may lose the lines of this time.
_GATHER_S: Final = 0.05
# How long a process that ends waits for its last lines.
_FLUSH_S: Final = 1.0

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LogSettings:
    """The settings of logs, which engines get too."""

    level: str  # in upper case
    is_json: bool
    bounds: LogBounds

    @classmethod
    def from_env(cls) -> "LogSettings":
        """Raises `SettingError`."""
        bounds = LogBounds(env.integer("VINERY_LOG_FILE_MB") << 20, env.integer("VINERY_LOG_FILES"))
        is_json = env.choice("VINERY_LOG_FORMAT") == "json"
        return cls(env.choice("VINERY_LOG_LEVEL").upper(), is_json, bounds)

    def formatter(self, process: str) -> logging.Formatter:
        return JsonFormatter(process) if self.is_json else LineFormatter(process)


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


class Output:
    """A bounded queue of lines, and the thread that writes them: a full disk, or a terminal that is
    not read, costs lines and never holds up the process. The thread gathers lines for a moment,
    because a wake-up for each would cost the event loop more than the writing."""

    def __init__(self, write: Callable[[bytes], bool], notice: Callable[[int], bytes]) -> None:
        """`write` returns whether it has written all lines, and raises nothing. `notice` returns
        the line that reports how many lines were lost."""
        self._write = write
        self._notice = notice
        self._lock = threading.RLock()  # a handler of a signal may log while its thread does
        self._lines: deque[bytes] = deque()
        self._num_bytes = 0
        self._num_lost = 0
        self._filled, self._urgent, self._idle = (threading.Event() for _ in range(3))
        self._idle.set()
        threading.Thread(target=self._run, name="log", daemon=True).start()

    def put(self, line: bytes, *, is_urgent: bool = False) -> None:
        """Write a line soon, or lose it if too many wait."""
        with self._lock:
            if self._num_bytes + len(line) > _MAX_QUEUED_BYTES:
                self._num_lost += 1
                return
            self._lines.append(line)
            self._num_bytes += len(line)
            self._idle.clear()
        if is_urgent:
            self._urgent.set()
        if not self._filled.is_set():
            self._filled.set()

    def flush(self, timeout_s: float) -> None:
        """Wait until all lines are written, at most for this time."""
        self._urgent.set()
        self._idle.wait(timeout_s)

    def _run(self) -> None:
        while True:
            self._filled.wait()
            self._urgent.wait(_GATHER_S)
            self._filled.clear()
            self._urgent.clear()
            with self._lock:
                lines, num_lost = list(self._lines), self._num_lost
                self._lines.clear()
                self._num_bytes = self._num_lost = 0
            notice = [self._notice(num_lost)] if num_lost else []
            is_written = not (lines or notice) or self._write(b"".join(lines + notice))
            with self._lock:
                self._num_lost += 0 if is_written else num_lost + len(lines)
                if not self._lines:
                    self._idle.set()


def write_all(fd: int, data: bytes) -> bool:
    """Write to a pipe or a terminal, however long that takes. Returns False if it is closed."""
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[os.write(fd, rest) :]
        except BlockingIOError:
            poll = select.poll()
            poll.register(fd, select.POLLOUT)
            poll.poll()
        except OSError:
            return False
    return True


class ProcessLog:
    """Standard output and the file of this process."""

    def __init__(self, process: str, settings: LogSettings, folder: Path) -> None:
        self.process = process
        self.settings = settings
        self._formatter = settings.formatter(process)
        self._file = LogFile(log_path(folder, process), settings.bounds)
        self.stdout = Output(functools.partial(write_all, _STDOUT), self._notice)
        self._to_file = Output(self._file.write, self._notice)

    def write(self, record: logging.LogRecord) -> None:
        line = self._line(record)
        is_urgent = record.levelno >= logging.WARNING
        if not getattr(record, "is_printed", False):
            self.stdout.put(line, is_urgent=is_urgent)
        self._to_file.put(line, is_urgent=is_urgent)

    def flush(self) -> None:
        for output in (self.stdout, self._to_file):
            output.flush(_FLUSH_S)

    def write_crashes(self) -> None:
        """Let the interpreter write its stacks to the file when native code crashes."""
        if self._file.fd is not None:
            faulthandler.enable(self._file.fd)

    def _line(self, record: logging.LogRecord) -> bytes:
        return self._formatter.format(record).encode(errors="backslashreplace") + b"\n"

    def _notice(self, num_lost: int) -> bytes:
        text = "%d lines of this log are lost: they could not be written in time"
        return self._line(
            logging.LogRecord(__name__, logging.WARNING, "", 0, text, (num_lost,), None)
        )


_process_log: ProcessLog | None = None


class ProcessHandler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        if _process_log is not None:
            try:
                _process_log.write(record)
            except Exception:
                # `handleError` would print the arguments, which may hold a prompt.
                _process_log.write(_unformatted(record))

    def flush(self) -> None:
        if _process_log is not None:
            _process_log.flush()


def begin(process: str) -> None:
    """From now on, this process logs to standard output and to its file. Raises `SettingError`."""
    global _process_log
    settings = LogSettings.from_env()
    _process_log = ProcessLog(process, settings, Home.from_env().logs)
    _process_log.write_crashes()
    logging.config.dictConfig(logging_config(settings.level))
    logging.captureWarnings(True)
    sys.excepthook = _log_error
    threading.excepthook = lambda failed: _log_error(
        failed.exc_type, failed.exc_value, failed.exc_traceback
    )


def has_begun() -> bool:
    return _process_log is not None


def is_json() -> bool:
    return _process_log is not None and _process_log.settings.is_json


def announce(text: str) -> None:
    """Print a line for the people at the terminal, and log it."""
    if is_json():
        log.info("%s", text)
        return
    show(text)
    note_printed(text)


def show(text: str) -> None:
    """Print lines for the people at the terminal, which may hold credentials, and log nothing."""
    if _process_log is None:
        print(f"vinery: {text}", flush=True)  # noqa: T201
    else:  # a terminal that is not read must not hold up the supervisor
        _process_log.stdout.put(f"vinery: {text}\n".encode(errors="replace"), is_urgent=True)


def note_printed(text: str, level: int = logging.INFO) -> None:
    """Log what was printed already: to the file alone, if there is one."""
    if _process_log is not None:
        log.log(level, "%s", text, extra={"is_printed": True})


def repeat(entry: LogEntry) -> None:
    """Write an event of another process's log, such as an engine's, to standard output."""
    if _process_log is not None:
        line = entry.json() if is_json() else entry.text()
        _process_log.stdout.put(line.encode(errors="backslashreplace") + b"\n")


def logging_config(level: str) -> dict[str, Any]:
    """The configuration for `logging.config.dictConfig` and Django's LOGGING."""
    process = os.environ.get(PROCESS_VARIABLE, "vinery")
    quiet = max(level, "WARNING", key=logging.getLevelNamesMapping().__getitem__)
    # At the level of details, libraries log headers and parameters of statements.
    of_others = max(level, "INFO", key=logging.getLevelNamesMapping().__getitem__)
    if has_begun():
        handler: dict[str, Any] = {"()": ProcessHandler}
    else:
        handler = {"class": "logging.StreamHandler", "formatter": "line"}
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"line": {"()": LineFormatter, "process": process}},
        "filters": {"clients": {"()": ClientRecordLimit}},
        "handlers": {"output": {**handler, "filters": ["clients"]}},
        "root": {"handlers": ["output"], "level": of_others},
        "loggers": {
            **{name: {"level": level} for name in _OWN},
            # These libraries log every step of a start, a stop or a schedule.
            **{name: {"level": quiet} for name in _VERBOSE},
            # Django's default configuration gives these their own handlers.
            "django": {"handlers": [], "level": of_others},
            "django.server": {"handlers": [], "level": quiet, "propagate": True},
            # An error with a stack for each request; `web/errors` logs one line instead.
            "django.security.DisallowedHost": {"level": "CRITICAL"},
            # Django logs every 404 as a warning; metrics count requests.
            "django.request": {"level": "ERROR"},
        },
    }


def _unformatted(record: logging.LogRecord) -> logging.LogRecord:
    text, where = "a message that cannot be formatted, of %s:%d", (record.pathname, record.lineno)
    return logging.LogRecord(record.name, logging.ERROR, "", 0, text, where, None)


def _log_error(kind: type[BaseException], error: Any, trace: Any) -> None:
    log.critical("an error that is not handled", exc_info=(kind, error, trace))
