"""A model that cannot load is tried a few times, stays failed, and loads when it is corrected."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.conftest import REPOSITORY, Running, until
from tests.system.commands import vinery
from tests.system.ledger import execute

pytestmark = pytest.mark.system

TINY_CHAT = REPOSITORY / "models" / "tiny-chat"


@pytest.fixture(scope="module")
def platform(running: Running) -> Running:
    return running


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(TINY_CHAT, tmp_path / "model"))


@pytest.fixture
def serve(platform: Running) -> Iterator[Callable[..., None]]:
    """Serves a folder, and removes it after the test."""
    names: list[str] = []

    def add(folder: Path, name: str, *options: str) -> None:
        vinery(platform, "model", "add", str(folder), "--name", name, *options)
        names.append(name)

    yield add
    for name in names:
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


def answers(platform: Running, name: str) -> int:
    return httpx.post(
        f"{platform.base_url}/v1/completions",
        headers={"authorization": f"Bearer {platform.api_key}"},
        json={"model": name, "prompt": "Hello", "max_tokens": 2},
        timeout=60,
    ).status_code


def test_a_model_with_cut_weights_stays_failed_and_loads_when_they_are_whole(
    platform: Running, folder: Path, serve: Callable[..., None]
) -> None:
    weights = folder / "openvino_model.bin"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-1000])

    with watching(platform, "cut") as states:
        serve(folder, "cut")
        until(lambda: status(platform, "cut")[0] == "failed")
        assert answers(platform, "cut") == 503
        _, error = status(platform, "cut")
        assert f"it has {len(whole) - 1000:,} bytes, and the graph needs {len(whole):,}" in error
        assert "is cut: it has" in vinery(platform, "model", "list")

        weights.write_bytes(whole)
        until(lambda: states[-1] == "ready", timeout_s=60)

    assert status(platform, "cut") == ("ready", "")
    assert answers(platform, "cut") == 200
    assert states in (["unloaded", "failed", "loading", "ready"], ["failed", "loading", "ready"])
    until(lambda: len(platform.pids("engine")) == 2)


def test_a_failed_model_loads_after_a_change_of_its_options_or_when_it_is_asked_to(
    platform: Running, folder: Path, serve: Callable[..., None]
) -> None:
    with watching(platform, "picky") as states:
        serve(folder, "picky", "--option", 'plugin={"PERFORMANCE_HINT": "FAST"}')
        until(lambda: status(platform, "picky")[0] == "failed")
        _, error = status(platform, "picky")
        assert error.startswith("The property PERFORMANCE_HINT cannot be FAST.")

        vinery(platform, "model", "load", "picky")
        until(lambda: states[-2:] == ["loading", "failed"] and len(states) > 3, timeout_s=60)
    assert [each for each in states if each != "unloaded"] == ["loading", "failed"] * 2
