"""The command that messages show works in the reader's shell."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from vinery.cli import invocation


@pytest.fixture(autouse=True)
def _no_command_on_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")


def test_the_program_is_named_from_the_folder_of_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = Path(sys.executable).parent
    monkeypatch.chdir(folder.parent)

    assert invocation.vinery().split()[-1] == f"{folder.name}/vinery"


@pytest.mark.parametrize("folder", [Path("/"), None])
def test_elsewhere_its_whole_path_is_shown(
    folder: Path | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder or tmp_path)

    assert invocation.vinery().split()[-1] == str(Path(sys.executable).with_name("vinery"))
