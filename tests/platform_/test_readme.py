"""README's first examples work as they are written, with any home and port."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY, Running

pytestmark = pytest.mark.system

README = (REPOSITORY / "README.md").read_text(encoding="utf-8")


def example(language: str) -> str:
    """Return the first block of code in this language."""
    match = re.search(rf"^```{language}\n(.*?)^```", README, flags=re.MULTILINE | re.DOTALL)
    assert match, f"README.md has no block of {language}"
    return match[1]


@pytest.fixture
def shell_example(tmp_path: Path) -> str:
    """The example for a shell, with `vinery` of this environment instead of `.venv`."""
    program = tmp_path / "vinery"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m vinery.cli "$@"\n')
    program.chmod(0o755)
    text = example("sh")
    assert ".venv/bin/vinery env" in text
    return text.replace(".venv/bin/vinery", str(program))


def run(script: str, running: Running) -> str:
    result = subprocess.run(
        ["sh", "-ec", script],
        env=dict(running.environment),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_the_example_for_a_shell_gets_an_answer(running: Running, shell_example: str) -> None:
    assert "Paris" in run(shell_example, running)


def test_the_python_example_streams_an_answer(
    running: Running, shell_example: str, tmp_path: Path
) -> None:
    (tmp_path / "example.py").write_text(example("python"))
    setup = shell_example.partition("\n")[0]

    printed = run(f'{setup}\n"{sys.executable}" "{tmp_path}/example.py"', running)

    assert printed.split()[:3] == ["1", "2", "3"]


def test_no_example_has_an_address_or_a_home_of_its_own() -> None:
    blocks = re.findall(r"^```.*?^```", README, flags=re.MULTILINE | re.DOTALL)

    assert not [block for block in blocks if "127.0.0.1:8000" in block or "var/" in block]
