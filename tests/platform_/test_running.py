"""The whole platform as `make up` starts it serves, as in README, restarts processes, and ends."""

import json
import os
import re
import signal
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest

from tests.conftest import REPOSITORY, Running, run_platform, runs, until
from tests.platform_ import scripts

pytestmark = pytest.mark.system


class SecondStart(NamedTuple):
    """Two starts of one home, and what the first start printed and wrote."""

    first: Running
    printed: str
    secrets: dict[str, str]
    second: Running


def answer(running: Running) -> str:
    response = httpx.post(
        f"{running.base_url}/v1/chat/completions",
        headers={"Authorization": f"Bearer {running.api_key}"},
        json={"model": "tiny-chat", "messages": [{"role": "user", "content": "Hello!"}]},
        timeout=60,
    )
    assert response.status_code == 200, response.text
    content: str = response.json()["choices"][0]["message"]["content"]
    return content


def test_no_log_or_engine_has_a_secret_and_files_and_sockets_are_private(running: Running) -> None:
    until(lambda: "saved in" in running.log.read_text())

    text = running.log.read_text()
    assert running.base_url in text
    assert running.api_key not in text
    assert running.admin_password not in text
    assert stat.S_IMODE((running.home / "bootstrap.json").stat().st_mode) == 0o600

    secrets = [path.read_text().strip() for path in (running.home / "secrets").iterdir()]
    engines = running.processes("engine")
    families = [each for engine in engines for each in (engine, *engine.children(recursive=True))]
    known = "\n".join(
        [f"{value}\n{each.cmdline()}" for each in families for value in each.environ().values()]
    )
    assert engines
    assert [secret for secret in (*secrets, running.api_key) if secret in known] == []
    sockets = [path for path in (running.home / "run").iterdir() if path.is_socket()]
    assert {stat.S_IMODE(path.stat().st_mode) for path in sockets} <= {0o600}
    assert stat.S_IMODE((running.home / "run").stat().st_mode) == 0o700


@pytest.fixture(scope="module")
def second_start(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecondStart]:
    """Start a platform twice by `make`, which SIGTERM ends first. The last test stops it."""
    folder = tmp_path_factory.mktemp("twice")
    home, command = folder / "home", make_up(folder)
    with run_platform(home, command=command, is_first_start=True, has_terminal=True) as first:
        until(lambda: "curl " in first.log.read_text())
        printed, secrets = first.log.read_text(), secrets_in(home)
        end_make(first, signal.SIGTERM)
    with run_platform(home, command=command, has_terminal=True) as second:
        until(lambda: "curl " in second.log.read_text())
        yield SecondStart(first, printed, secrets, second)


def test_a_second_start_keeps_secrets_from_logs_and_shows_curl(second_start: SecondStart) -> None:
    first, second = second_start.first, second_start.second
    assert (second.api_key, second.admin_password) == (first.api_key, first.admin_password)
    assert secrets_in(second.home) == second_start.secrets
    assert answer(second)
    assert first.admin_password in second_start.printed
    assert second.admin_password not in second.log.read_text()

    texts = [path.read_text() for path in (second.home / "logs").iterdir()]
    assert any(f"running at {second.base_url}" in text for text in texts)
    assert not [text for text in texts if second.api_key in text or second.admin_password in text]

    text = second.log.read_text()
    assert second.base_url in text
    curl = next(line.strip() for line in text.splitlines() if line.strip().startswith("curl "))
    assert json.loads(os.popen(f"{curl} --silent").read())["object"] == "chat.completion"


def test_ctrl_c_in_a_terminal_ends_all_processes(second_start: SecondStart) -> None:
    family = second_start.second.family()

    os.killpg(second_start.second.pid, signal.SIGINT)

    until(lambda: not any(map(runs, family)), timeout_s=30)


def test_a_killed_make_ends_all_processes(tmp_path: Path) -> None:
    with run_platform(tmp_path / "home", command=make_up(tmp_path)) as running:
        end_make(running, signal.SIGKILL)


def end_make(running: Running, signal_to_make: signal.Signals) -> None:
    family = running.family()
    assert len(family) >= 6, "make, supervisor, node, engine, web, jobs"

    os.kill(running.pid, signal_to_make)

    until(lambda: not any(map(runs, family)))


def make_up(folder: Path) -> tuple[str, ...]:
    """Return the command `make up` with a virtual environment that needs no installation."""
    venv = folder / "venv"
    (venv / "bin").mkdir(parents=True)
    python = venv / "bin" / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    (venv / "runtime.stamp").touch()
    return ("make", "--silent", "up", f"VENV={venv}")


def secrets_in(home: Path) -> dict[str, str]:
    return {file.name: file.read_text() for file in (home / "secrets").iterdir()}


README = (REPOSITORY / "README.md").read_text(encoding="utf-8")


def example(language: str) -> str:
    """Return the first block of code in this language."""
    match = re.search(rf"^```{language}\n(.*?)^```", README, flags=re.MULTILINE | re.DOTALL)
    assert match, f"README.md has no block of {language}"
    return match[1]


def run(script: str, running: Running) -> str:
    result = scripts.run("sh", "-ec", script, environment=running.environment)
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_the_examples_for_a_shell_and_python_get_answers(running: Running, tmp_path: Path) -> None:
    program = tmp_path / "vinery"  # of this environment, instead of that of `.venv`
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m vinery_platform.cli "$@"\n')
    program.chmod(0o755)
    assert ".venv/bin/vinery env" in example("sh")
    shell_example = example("sh").replace(".venv/bin/vinery", str(program))
    assert "Paris" in run(shell_example, running)

    (tmp_path / "example.py").write_text(example("python"))
    setup = shell_example.partition("\n")[0]

    printed = run(f'{setup}\n"{sys.executable}" "{tmp_path}/example.py"', running)
    assert printed.split()[:3] == ["1", "2", "3"]
