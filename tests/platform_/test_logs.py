"""A log record is one line, and contains no key."""

import json
import logging
import sys

from django.urls import reverse
from hypothesis import example, given
from hypothesis import strategies as st

from tests.tables import table
from vinery.process.logs import ClientRecordLimit, logging_config
from vinery_serving.logs.lines import JsonFormatter, LineFormatter

FORMATTER = LineFormatter("web-1")


def line_of(message: str, *arguments: object, is_error: bool = False) -> str:
    exc_info = sys.exc_info() if is_error else None
    record = logging.LogRecord("room.part", logging.INFO, "", 0, message, arguments, exc_info)
    record.created, record.msecs = 0.5, 500.0
    return FORMATTER.format(record)


def test_a_line_has_time_level_logger_and_message_and_is_cut() -> None:
    line = line_of("loaded model=%s", "tiny")

    assert line == "1970-01-01T00:00:00.500Z INFO web-1 room.part: loaded model=tiny"
    assert len(line_of("x" * 100_000)) < 5000


@given(st.text(st.characters()))
@example("\x1b[2J\x07\x9b \u202e \ud800 \0 caf\u00e9 \u540d")
def test_any_message_is_one_line_that_no_terminal_obeys(message: str) -> None:
    line = line_of("%s", message)

    assert len(line.splitlines()) == 1
    assert line.isprintable()
    assert all(letter in line for letter in message if letter.isprintable())


def test_json_has_the_same_values_each_under_its_name() -> None:
    record = logging.LogRecord("room", logging.INFO, "", 0, "request\n%s", ("x\x1b\u202e",), None)
    record.created, record.msecs = 0.5, 500.0
    record.fields = {"model": "tiny", "status": 200, "error_code": None, "reason": "a b=c"}

    line = JsonFormatter("web-1").format(record)

    text = FORMATTER.format(record)
    assert text.endswith('status=200 reason="a b=c"')
    assert line.isascii() and line.isprintable()
    assert json.loads(line) == {
        "time": "1970-01-01T00:00:00.500Z",
        "level": "INFO",
        "process": "web-1",
        "logger": "room",
        "message": "request x\x1b\u202e",
        "model": "tiny",
        "status": 200,
        "reason": "a b=c",
    }


@table("formatter", [FORMATTER, JsonFormatter("web-1")])
@table("logger", ["vinery_serving.http.edge", "uvicorn.error", "asyncio", "django.request"])
def test_an_error_of_a_request_is_logged_without_its_text(
    formatter: logging.Formatter, logger: str
) -> None:
    try:
        int("the secret plan")
    except ValueError:
        record = logging.LogRecord(logger, logging.ERROR, "", 0, "failed", (), sys.exc_info())

    line = formatter.format(record)

    assert "secret" not in line
    assert "ValueError" in line and "test_logs.py" in line


def test_a_traceback_is_folded_into_the_line_and_a_task_of_asyncio_left_out() -> None:
    try:
        int("x")
    except ValueError:
        line = line_of("failed", is_error=True)

    assert "failed | ValueError: invalid literal" in line
    assert "test_a_traceback_is_folded_into_the_line" in line
    assert "\n" not in line
    text = "Task exception was never retrieved\nfuture: <Task exception=ValueError('secret')>"
    record = logging.LogRecord("asyncio", logging.ERROR, "", 0, text, (), None)
    assert FORMATTER.format(record).endswith("asyncio: Task exception was never retrieved")


@table(
    "message, end",
    [
        ("key=vny_live_0123456789abcdefghijklmnopqrstuvwxyz", "key=vny_***"),
        ("created vny_live_C9Tq…a3", "created vny_live_C9Tq…a3"),  # its short form
        ("sent Authorization: Bearer abc.DEF-1", "Authorization: Bearer ***"),
    ],
)
def test_a_secret_is_blacked_out(message: str, end: str) -> None:
    assert line_of(message).endswith(end)


def test_the_key_of_a_link_to_set_a_password_is_blacked_out() -> None:
    path = reverse("account_reset_password_from_key", kwargs={"uidb36": "3", "key": "c8x1-0f9e"})

    line = line_of("Service Unavailable: %s", path)

    assert line.endswith("Service Unavailable: /accounts/password/reset/key/***/")


def test_libraries_stay_quiet_at_every_level() -> None:
    for level, celery in (("DEBUG", "WARNING"), ("INFO", "WARNING"), ("ERROR", "ERROR")):
        assert logging_config(level)["loggers"]["celery"]["level"] == celery
    config = logging_config("DEBUG")
    assert config["root"]["level"] == config["loggers"]["django"]["level"] == "INFO"
    assert config["loggers"]["vinery_serving"]["level"] == "DEBUG"


def test_clients_cannot_fill_the_log_with_unknown_hosts() -> None:
    now = [0.0]
    limit = ClientRecordLimit(clock=lambda: now[0])

    def num_passed(name: str) -> int:
        record = logging.LogRecord(name, logging.ERROR, "", 0, "refused", (), None)
        return sum(limit.filter(record) for _ in range(1000))

    assert num_passed("django.security.DisallowedHost") == 10
    assert num_passed("vinery.web.errors") == num_passed("django.security.SuspiciousFile") == 0
    assert num_passed("vinery_serving.http.edge") == 1000
    now[0] = 10.0
    assert num_passed("django.security.DisallowedHost") == 10
