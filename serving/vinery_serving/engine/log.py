"""The log of an engine process: standard output and error are the file itself. So the file also has
OpenVINO's own lines, and the stacks of a crash. No other process writes the log, because an engine
outlives its node."""

import faulthandler
import logging
import os
import sys
from types import TracebackType
from typing import Final

from vinery_serving.engine.config import EngineConfig
from vinery_serving.processes.logs.file import LogBounds, LogFile, engine_name
from vinery_serving.processes.logs.lines import JsonFormatter, LineFormatter

_STDOUT: Final = 1
_STDERR: Final = 2

logger = logging.getLogger(__name__)


class _FileHandler(logging.Handler):
    def __init__(self, file: LogFile) -> None:
        super().__init__()
        self._file = file

    def emit(self, record: logging.LogRecord) -> None:
        self._file.write(self.format(record).encode(errors="backslashreplace") + b"\n")


class EngineLogFile:
    """Call `check` about once a second: native code writes past the logger."""

    def __init__(self, config: EngineConfig) -> None:
        """Redirects standard output and error, and begins to log."""
        faulthandler.enable(_STDERR)
        self._file: LogFile | None = None
        if config.log is not None:
            bounds = LogBounds(config.log.max_bytes, config.log.num_files)
            self._file = LogFile(config.log.path, bounds, _STDERR)
            _start_logging(self._file, config)
        os.dup2(_STDERR, _STDOUT)

    def check(self) -> None:
        if self._file is not None:
            self._file.check()
        if not os.path.samestat(os.fstat(_STDOUT), os.fstat(_STDERR)):
            os.dup2(_STDERR, _STDOUT)


def _start_logging(file: LogFile, config: EngineConfig) -> None:
    assert config.log is not None
    handler = _FileHandler(file)
    kind = JsonFormatter if config.log.is_json else LineFormatter
    handler.setFormatter(kind(engine_name(config.name)))
    logging.basicConfig(handlers=[handler], level=config.log.level)
    logging.captureWarnings(True)
    sys.excepthook = _log_error


def _log_error(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    logger.critical("the engine ends by an error", exc_info=(kind, error, trace))
