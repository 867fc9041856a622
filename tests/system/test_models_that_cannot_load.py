"""A model that cannot load is tried a few times, stays failed, and loads when it is corrected."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY, Running, until
from tests.system.clients import answers, complete
from tests.system.commands import vinery
from tests.system.ledger import execute

pytestmark = pytest.mark.system

TINY_CHAT = REPOSITORY / "models" / "tiny-chat"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(TINY_CHAT, tmp_path / "model"))


@contextmanager
def serving(platform: Running, folder: Path, name: str, *options: str) -> Iterator[None]:
    """A model that cannot answer yet."""
    vinery(platform, "model", "add", str(folder), "--name", name, *options)
    yield
    vinery(platform, "model", "remove", name)


def status(platform: Running, name: str) -> tuple[str, str]:
    """The state of a model, and its last error."""
    rows = execute(
        platform,
        "SELECT e.state, e.last_error FROM serving_enginestatus e JOIN serving_servedmodel m "
        "ON m.id = e.model_id WHERE m.name = ?",
        name,
    )
    return rows[0] if rows else ("unloaded", "")


@contextmanager
def watching(platform: Running, name: str) -> Iterator[list[str]]:
    """The states that follow each other meanwhile."""
    states: list[str] = []
    is_over = threading.Event()

    def watch() -> None:
        while not is_over.wait(0.02):
            state, _ = status(platform, name)
            if not states or states[-1] != state:
                states.append(state)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield states
    finally:
        is_over.set()
        thread.join()


def test_a_model_with_cut_weights_stays_failed_and_loads_when_they_are_whole(
    running: Running, folder: Path
) -> None:
    weights = folder / "openvino_model.bin"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-1000])

    with watching(running, "cut") as states, serving(running, folder, "cut"):
        until(lambda: status(running, "cut")[0] == "failed")
        refused = until(lambda: (found := complete(running, "cut")).status_code == 503 and found)
        assert "failed to load" in refused.json()["error"]["message"]
        assert refused.headers["retry-after"]
        assert answers(running, "tiny-chat")
        _, error = status(running, "cut")
        assert f"it has {len(whole) - 1000:,} bytes, and the graph needs {len(whole):,}" in error
        assert "is cut: it has" in vinery(running, "model", "list")

        weights.write_bytes(whole)
        until(lambda: states[-1] == "ready", timeout_s=60)

        assert status(running, "cut") == ("ready", "")
        assert answers(running, "cut")
        assert states in (
            ["unloaded", "failed", "loading", "ready"],
            ["failed", "loading", "ready"],
        )
        until(lambda: len(running.pids("engine")) == 2)


def test_a_failed_model_loads_after_a_change_of_its_options_or_when_it_is_asked_to(
    running: Running, folder: Path
) -> None:
    option = ("--option", 'plugin={"PERFORMANCE_HINT": "FAST"}')
    with watching(running, "picky") as states, serving(running, folder, "picky", *option):
        until(lambda: status(running, "picky")[0] == "failed")
        _, error = status(running, "picky")
        assert error.startswith("The property PERFORMANCE_HINT cannot be FAST.")
        assert "does not load" in (running.home / "logs" / "engine-picky.log").read_text()

        vinery(running, "model", "load", "picky")
        until(lambda: states[-2:] == ["loading", "failed"] and len(states) > 3, timeout_s=60)
        assert [each for each in states if each != "unloaded"] == ["loading", "failed"] * 2
