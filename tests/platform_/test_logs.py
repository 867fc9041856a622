"""A log record is one line without a key, and the outputs of a log hold up no process."""

import json
import logging
import os
import sys
import threading

from django.urls import reverse
from hypothesis import example, given
from hypothesis import strategies as st

from tests.tables import table
from vinery_platform.processes.log_setup import ClientRecordLimit, Output, logging_config, write_all
from vinery_serving.processes.logs.lines import JsonFormatter, LineFormatter

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

    assert FORMATTER.format(record).endswith('status=200 reason="a b=c"')
    assert line.isascii() and line.isprintable()
    shown = {"time": "1970-01-01T00:00:00.500Z", "level": "INFO", "process": "web-1"}
    shown |= {"logger": "room", "message": "request x\x1b\u202e"}
    assert json.loads(line) == {**shown, "model": "tiny", "status": 200, "reason": "a b=c"}


@table("formatter", [FORMATTER, JsonFormatter("web-1")])
@table("logger", ["vinery_serving.gateway", "uvicorn.error", "asyncio", "django.request"])
def test_an_error_is_logged_without_its_text(formatter: logging.Formatter, logger: str) -> None:
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


def test_libraries_stay_quiet_and_log_no_details() -> None:
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
    assert (
        num_passed("vinery_platform.web.errors")
        == num_passed("django.security.SuspiciousFile")
        == 0
    )
    assert num_passed("vinery_serving.gateway.endpoints.edge") == 1000
    now[0] = 10.0
    assert num_passed("django.security.DisallowedHost") == 10


def notice(num_lost: int) -> bytes:
    return b"%d lost\n" % num_lost


def test_lines_are_written_in_order() -> None:
    written: list[bytes] = []

    def write(data: bytes) -> bool:
        written.append(data)
        return True

    output = Output(write, notice)
    for number in range(1000):
        output.put(b"%d\n" % number, is_urgent=number % 7 == 0)
    output.flush(30.0)

    assert b"".join(written).split() == [b"%d" % number for number in range(1000)]


def test_a_reader_that_stands_still_costs_lines_and_holds_up_no_one() -> None:
    reader, writer = os.pipe()
    output = Output(lambda data: write_all(writer, data), notice)
    line = b"x" * 1023 + b"\n"

    for _ in range(5000):
        output.put(line)

    received = bytearray()
    while b"lost\n" not in received:
        received += os.read(reader, 65536)
    num_lost = int(received.split()[-2])
    assert num_lost > 0
    assert received.count(line) + num_lost == 5000
    os.close(reader)
    assert not write_all(writer, b"x\n"), "a closed reader is no error"


def test_lines_that_a_disk_does_not_take_are_reported_when_it_does() -> None:
    is_full = threading.Event()
    is_full.set()
    written = bytearray()

    def write(data: bytes) -> bool:
        if is_full.is_set():
            return False
        written.extend(data)
        return True

    output = Output(write, notice)
    output.put(b"a\nb\n")
    output.put(b"c\n")
    output.flush(30.0)
    is_full.clear()
    output.put(b"d\n")
    output.flush(30.0)

    assert bytes(written) == b"d\n2 lost\n"
