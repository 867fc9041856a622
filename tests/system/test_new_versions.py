"""A model gets other files while clients use it: no request fails, whatever is killed meanwhile."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY, Running, run_platform, until
from tests.system.commands import vinery
from tests.system.ledger import execute
from tests.system.load import load

pytestmark = pytest.mark.system

TINY_CHAT = REPOSITORY / "models" / "tiny-chat"


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with run_platform(tmp_path_factory.mktemp("versions") / "home") as platform:
        yield platform


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The next version of the model."""
    return Path(shutil.copytree(TINY_CHAT, tmp_path / "next"))


def state(platform: Running) -> tuple[str, int | None, bool]:
    """The state of its engine, the id of the process, and whether a former one serves."""
    ((state, pid, has_former),) = execute(
        platform, "SELECT state, pid, has_former FROM serving_enginestatus"
    )
    return str(state), pid, bool(has_former)


def change(platform: Running, folder: Path) -> None:
    vinery(platform, "model", "change", "tiny-chat", "--folder", str(folder))


def test_a_new_version_takes_over_under_load(platform: Running, folder: Path) -> None:
    _, first, _ = state(platform)
    with load(platform):
        change(platform, folder)
        until(lambda: state(platform)[0] == "ready" and state(platform)[1] != first, timeout_s=60)
        until(lambda: first not in platform.pids("engine"), timeout_s=60)
        _, second, has_former = state(platform)
        assert platform.pids("engine") == [second]
        assert not has_former
        change(platform, TINY_CHAT)
        until(lambda: state(platform)[1] not in (None, second), timeout_s=60)
    until(lambda: len(platform.pids("engine")) == 1, timeout_s=60)


def test_the_former_version_serves_while_the_new_one_cannot_load(
    platform: Running, folder: Path
) -> None:
    (first,) = platform.pids("engine")
    weights = folder / "openvino_model.bin"
    weights.write_bytes(weights.read_bytes()[:1000])
    with load(platform) as clients:
        change(platform, folder)
        until(lambda: state(platform) == ("failed", None, True))
        assert "failed, the former version serves" in vinery(platform, "model", "list")
        clients.wait_for_more()
        platform.kill("node")
        until(lambda: state(platform) == ("failed", None, True))
        clients.wait_for_more()
        assert platform.pids("engine") == [first]
        change(platform, TINY_CHAT)
        until(lambda: state(platform) == ("ready", first, False))
        clients.wait_for_more()
    assert platform.pids("engine") == [first]


def test_kills_while_a_new_version_loads_lose_no_request(platform: Running, folder: Path) -> None:
    (first,) = platform.pids("engine")
    with load(platform):
        change(platform, folder)
        until(lambda: len(platform.pids("engine")) == 2)
        (new,) = set(platform.pids("engine")) - {first}
        os.kill(new, signal.SIGKILL)
        until(lambda: state(platform)[0] == "ready", timeout_s=60)
        until(lambda: first not in platform.pids("engine"), timeout_s=60)
        change(platform, TINY_CHAT)
        until(lambda: len(platform.pids("engine")) == 2)
        platform.kill("node")
        until(lambda: len(platform.pids("engine")) == 1, timeout_s=60)
        until(lambda: state(platform)[0] == "ready", timeout_s=60)
