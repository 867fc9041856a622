"""The `vinery` command has help at every level, and one line for every mistake."""

import argparse
import os
import socket
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from tests.conftest import clean_environment
from tests.platform_ import scripts
from tests.tables import table
from vinery_platform.cli import commands
from vinery_platform.cli.accounts import _days_or_never
from vinery_platform.cli.model import option
from vinery_platform.cli.shape import period
from vinery_platform.config.home import Home
from vinery_serving.processes.logs.file import LogBounds, LogFile, log_path
from vinery_serving.processes.logs.lines import time_text


def parsers(parser: argparse.ArgumentParser) -> list[argparse.ArgumentParser]:
    found = [parser]
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for child in action.choices.values():
                found += parsers(child)
    return found


@table("parser", parsers(commands.parser(*commands.COMMANDS)))
def test_every_command_and_every_argument_has_a_help_text(parser: argparse.ArgumentParser) -> None:
    assert parser.format_help()
    for action in parser._actions:
        assert action.help or isinstance(action, argparse._SubParsersAction), action


@table("word", ["--help", "config"])
def test_help_and_commands_that_need_no_django_do_not_load_it(tmp_path: Path, word: str) -> None:
    words = ("-X", "importtime", "-m", "vinery_platform.cli", word)
    environment = {"VINERY_HOME": str(tmp_path), "VINERY_PORT": "x"}
    result = scripts.new_python(*words, environment=environment)

    assert result.returncode == 0
    assert "VINERY_PORT" in result.stdout
    assert "django" not in result.stderr


def test_a_command_that_does_not_exist_is_a_usage_error() -> None:
    wrong = scripts.vinery("grow")
    assert wrong.returncode == 2
    assert "invalid choice: 'grow'" in wrong.stderr
    near = scripts.vinery("modle")
    assert near.returncode == 2
    assert "There is no command modle. Did you mean model?" in near.stderr


def test_bash_completes_commands_and_options(capsys: pytest.CaptureFixture[str]) -> None:
    assert commands.run(["completion"]) == 0
    asked = {
        "k": "key",
        "key cr": "create",
        "key create --na": "--name",
        "usage show --by model --to": "--to --top",
    }
    show = '_vinery; echo "${COMPREPLY[@]}"'
    lines = [
        f"COMP_WORDS=(vinery {words}); COMP_CWORD={len(words.split())}; {show}" for words in asked
    ]
    script = "\n".join([capsys.readouterr().out, *lines])
    found = subprocess.run(["bash"], input=script, capture_output=True, text=True, check=True)
    assert found.stdout.splitlines() == list(asked.values())


def test_commands_load_nothing_large_that_they_do_not_use(platform_home: Home) -> None:
    lists = (("key", "list"), ("model", "list"), ("job", "list"), ("host", "list"))
    commands = (*lists, ("usage", "show"))
    run = (
        "import sys; from vinery_platform.cli import main; "
        f"list(map(main, {commands})); print(*sys.modules)"
    )
    result = scripts.new_python("-c", run, environment={"VINERY_HOME": str(platform_home.path)})

    loaded = set(result.stdout.split())
    assert "django" in loaded
    large = {"celery", "numpy", "openvino", "psutil", "psycopg", "requests", "tokenizers", "yaml"}
    own = {"vinery_serving.core.request", "vinery_serving.models.pulls"}
    assert (large | own | {"cryptography"}) & loaded == set()


def test_the_supervisor_loads_neither_django_nor_messages() -> None:
    run = "import sys, vinery_platform.cli.up; print(*sys.modules)"
    loaded = set(scripts.new_python("-c", run).stdout.split())

    assert "vinery_platform.processes.supervisor" in loaded
    assert {"django", "msgspec", "vinery_serving.transport.messages"} & loaded == set()


@table(
    "settings, words, message",
    [
        ({"VINERY_PORT": "http"}, ("up",), "VINERY_PORT='http' is not a number"),
        ({"VINERY_LOG_LEVEL": "loud"}, ("up",), "VINERY_LOG_LEVEL='loud' is unknown"),
        ({"DATABASE_URL": "mysql://x"}, ("key", "list"), "DATABASE_URL is not a URL"),
        ({"REDIS_URL": "localhost"}, ("jobs",), "REDIS_URL is not a URL"),
    ],
)
def test_a_bad_setting_is_reported_in_one_line_that_names_it(
    platform_home: Home, settings: dict[str, str], words: tuple[str, ...], message: str
) -> None:
    # Port 8000 may be in use here.
    environment = {"VINERY_HOME": str(platform_home.path), "VINERY_PORT": "0"}

    line = scripts.refusal(*words, environment=environment | settings)
    assert line.startswith(f"vinery: {message}")


@table(
    "command",
    [
        *("key list", "model list", "usage show", "audit verify", "key create --name laptop"),
        *("admin reset-password", "env", "status", "web", "node", "jobs"),
    ],
)
def test_no_command_but_up_and_prepare_makes_a_home(tmp_path: Path, command: str) -> None:
    home = tmp_path / "none"

    environment = {"VINERY_HOME": str(home), "VINERY_PORT": "0"}
    line = scripts.refusal(*command.split(), environment=environment)

    assert line.startswith(f"vinery: There is no Vinery home at {home}. Start it with")
    assert not home.exists()


def test_a_home_without_a_database_or_tables_is_reported_and_gets_none(platform_home: Home) -> None:
    environment = {"VINERY_HOME": str(platform_home.path)}
    assert "There is no Vinery home at" in scripts.refusal("key", "list", environment=environment)
    assert not (platform_home.path / "vinery.sqlite3").exists()

    (platform_home.path / "vinery.sqlite3").touch()
    line = scripts.refusal("key", "list", environment=environment, status=1)
    assert line.startswith("vinery: The database cannot be used: no such table")
    assert "vinery prepare" in line


def test_a_server_of_the_database_that_is_down_is_one_line_with_the_reason(
    platform_home: Home,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = "{}:{}".format(*free.getsockname())
    environment = {
        "VINERY_HOME": str(platform_home.path),
        "DATABASE_URL": f"postgres://{address}/x",
    }
    line = scripts.refusal("key", "list", environment=environment, status=1)
    assert line.startswith("vinery: The database cannot be used: connection failed")
    assert "Connection refused" in line


def test_the_home_of_another_user_is_reported(tmp_path: Path) -> None:
    """The folder cannot be opened, as another user's. Root may open all, so a loop of links."""
    (tmp_path / "secrets").symlink_to("secrets")

    line = scripts.refusal("key", "list", environment={"VINERY_HOME": str(tmp_path)})
    assert "Run this as the user that runs `vinery up`" in line


def test_a_period_is_read_and_an_invalid_one_refused() -> None:
    assert period("12h") == timedelta(hours=12)
    assert period("30d") == timedelta(days=30)
    assert period("4w") == timedelta(weeks=4)
    for invalid in ("", "30", "d", "0d", "-1d", "1.5d", "30 d", "1y"):
        with pytest.raises(argparse.ArgumentTypeError, match="12h, 30d or 4w"):
            period(invalid)
    with pytest.raises(argparse.ArgumentTypeError, match="not a number of days"):
        _days_or_never("12h")


@table(
    "text, pair",
    [
        ("max_running=8", ("max_running", 8)),
        ("plugin={}", ("plugin", {})),
        ("output_format=hermes", ("output_format", "hermes")),
        ("a=b=c", ("a", "b=c")),
        ("a=", ("a", "")),
        *((text, None) for text in ("", "max_running", "=8")),
    ],
)
def test_an_engine_option_is_read(text: str, pair: tuple[str, object] | None) -> None:
    if pair is not None:
        assert option(text) == pair
        return
    with pytest.raises(argparse.ArgumentTypeError, match="KEY=VALUE"):
        option(text)


@pytest.mark.parametrize("command", ["config", "logs"])
def test_a_command_whose_reader_leaves_has_no_traceback(platform_home: Home, command: str) -> None:
    log = f"{time_text(1)} INFO web-1 room: one\n".encode()
    LogFile(log_path(platform_home.path / "logs", "web-1"), LogBounds()).write(log)
    reader, writer = os.pipe()
    os.close(reader)  # as `head` does after its last line
    try:
        words = [sys.executable, "-m", "vinery_platform.cli", command]
        environment = clean_environment() | {"VINERY_HOME": str(platform_home.path)}
        ended = subprocess.run(
            words, env=environment, stdout=writer, stderr=subprocess.PIPE, timeout=60, check=False
        )
    finally:
        os.close(writer)

    assert (ended.returncode, ended.stderr) == (0, b"")
