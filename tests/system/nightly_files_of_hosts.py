"""Hosts with different homes on one PostgreSQL: one gets the files of models from the other."""

import json
import os
import shutil
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import REPOSITORY, until
from tests.system.hosts import WITHIN_S, Installed, states, two_hosts

pytestmark = pytest.mark.system
# Beside the weights: larger than what each host gets, and long enough to be interrupted.
LARGE_BYTES = {"big": 256 << 20, "changed": 65 << 20}


def add_model(host: Installed, name: str) -> Path:
    """Returns its large file."""
    folder = host.home / "models" / name / "1"
    shutil.copytree(REPOSITORY / "models" / "tiny-chat", folder)
    large = folder / "large.dat"
    with large.open("wb") as file:
        file.truncate(LARGE_BYTES[name])
    draft = host.home / "models" / "draft"
    if not draft.exists():
        shutil.copytree(REPOSITORY / "models" / "tiny-draft", draft)
    option = ("--option", f"draft_model={draft}") if name == "big" else ()
    host.run("model", "add", str(folder), "--name", name, *option)
    return large


def fetches(host: Installed) -> dict[str, dict[str, Any]]:
    """The newest fetch of each folder."""
    rows = json.loads(host.run("job", "list", "--json"))
    found = [each for each in rows if each["kind"] == "fetch"]
    return {each["parameters"]["folder"]: each for each in reversed(found)}


def begun_in(models: Path) -> Path | None:
    """The file of the largest model, of which more has come than the other model has."""
    with suppress(FileNotFoundError):
        files = (models / ".partial" / "fetched").rglob("unfinished/*")
        return next((each for each in files if each.stat().st_size > LARGE_BYTES["changed"]), None)
    return None


def change_content(host: Installed, large: Path) -> None:
    """Let a file have another content than the host has told others."""

    def is_told() -> bool:
        rows = json.loads(host.run("host", "list", "--json"))
        return any("changed/1" in each["digests"] for each in rows)

    until(is_told, timeout_s=WITHIN_S)
    before = large.stat()
    with large.open("r+b") as file:
        file.write(b"x")
    os.utime(large, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_a_host_answers_for_models_of_another_and_gets_their_files_when_they_move(
    tmp_path: Path,
) -> None:
    with two_hosts(tmp_path) as (moon, mars):
        check_files(moon, mars)


def check_files(moon: Installed, mars: Installed) -> None:
    moon.start()
    until((moon.home / "bootstrap.json").exists, timeout_s=WITHIN_S)
    key = json.loads((moon.home / "bootstrap.json").read_text())["api_key"]
    _, changed = (add_model(moon, name) for name in LARGE_BYTES)
    mars.start()
    change_content(moon, changed)
    models = mars.home / "models"
    until(lambda: [mars.ask(each, key) for each in LARGE_BYTES] == [200, 200], timeout_s=WITHIN_S)
    assert not (models / "big").exists()
    assert not (models / "draft").exists()
    assert mars.engines() == []

    relay = moon.relay()
    moon.run("host", "drain", "moon")
    begun = until(lambda: begun_in(models), timeout_s=WITHIN_S, pause_s=0.002)
    relay.send_signal(signal.SIGSTOP)
    num_bytes = begun.stat().st_size
    assert num_bytes < LARGE_BYTES["big"]
    relay.kill()
    sizes = [num_bytes]

    def is_ready() -> bool:
        with suppress(FileNotFoundError):
            sizes.append(begun.stat().st_size)
        return "big (ready)" in states(mars)["mars"][1]

    until(is_ready, timeout_s=WITHIN_S)
    assert min(sizes) == num_bytes, "nothing is fetched again"
    done = fetches(moon)["big/1"]
    assert (done["state"], done["num_attempts"]) == ("done", 1)
    assert done["done_bytes"] == done["total_bytes"] > LARGE_BYTES["big"]
    assert (models / "big" / "1" / "large.dat").stat().st_size == LARGE_BYTES["big"]
    assert fetches(moon)["draft"]["state"] == "done"

    until(lambda: fetches(moon)["changed/1"]["state"] == "failed", timeout_s=WITHIN_S)
    assert "large.dat has another content than is listed" in fetches(moon)["changed/1"]["error"]
    assert not (models / "changed").exists()
    assert "changed (ready)" in states(moon)["moon"][1], "moon serves what mars cannot"
    assert [host.ask(each, key) for host in (moon, mars) for each in LARGE_BYTES] == [200] * 4
