"""`vinery convert` in a home without Django and without the network."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.models.convert.fake_environment import write_environment
from vinery_platform.cli import main


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("VINERY_HOME", str(tmp_path))
    yield tmp_path


def run(*words: str) -> int:
    status: int = main(("convert", *words))  # type: ignore[no-untyped-call]
    return status


def test_environments_and_architectures_are_listed_and_environments_removed(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_environment(home / "environments", "")
    assert run("environments", "--json") == 0
    states = {row["line"]: row["state"] for row in json.loads(capsys.readouterr().out)}
    assert states["5.0"] == "ready"
    assert states["4.57"] == "missing"
    assert run("remove", "5.0") == 0
    assert run("remove", "5.0") == 0
    assert capsys.readouterr().out.splitlines() == [
        "The environment 5.0 is removed.",
        "The environment 5.0 was not there.",
    ]
    assert run("remove", "1.0") == 1
    assert "There is no environment 1.0. There are 5.0" in capsys.readouterr().err
    assert run("architectures") == 0
    rows = capsys.readouterr().out.splitlines()
    assert any(row.split() == ["minicpmo", "4.51", "image-text-to-text"] for row in rows)
