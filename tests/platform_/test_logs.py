"""A log record is one line, and contains no key."""

from __future__ import annotations

import logging
import sys

from hypothesis import given
from hypothesis import strategies as st

from vinery.process.logs import LineFormatter, logging_config

FORMATTER = LineFormatter("web-1")


def line_of(message: str, *arguments: object, is_error: bool = False) -> str:
    exc_info = sys.exc_info() if is_error else None
    record = logging.LogRecord("room.part", logging.INFO, "", 0, message, arguments, exc_info)
    record.created, record.msecs = 0.5, 500.0
    return FORMATTER.format(record)


def test_a_line_has_time_level_logger_and_message() -> None:
    line = line_of("loaded model=%s", "tiny")

    assert line == "1970-01-01T00:00:00.500Z INFO web-1 room.part: loaded model=tiny"


@given(st.text())
def test_any_message_is_one_line(message: str) -> None:
    assert len(line_of("%s", message).splitlines()) == 1


def test_a_traceback_is_folded_into_the_line() -> None:
    try:
        int("x")
    except ValueError:
        line = line_of("failed", is_error=True)

    assert "failed | ValueError: invalid literal" in line
    assert "test_a_traceback_is_folded_into_the_line" in line
    assert "\n" not in line


def test_a_key_is_blacked_out() -> None:
    line = line_of("refused key=vny_live_0123456789abcdefghijklmnopqrstuvwxyz")

    assert line.endswith("refused key=vny_***")


def test_a_very_long_message_is_cut() -> None:
    assert len(line_of("x" * 100_000)) < 5000


def test_chatty_libraries_stay_quiet_at_every_level() -> None:
    def level_of(level: str) -> str:
        loggers = logging_config(level)["loggers"]
        return str(loggers["celery"]["level"])

    assert level_of("DEBUG") == level_of("INFO") == "WARNING"
    assert level_of("ERROR") == "ERROR"
