"""A backup of a running platform, restored after its database is lost.

The commands are those of docs/guides/backup.md.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Mapping
from pathlib import Path

import httpx
import psycopg
import pytest

from tests import prepared_home, stores
from tests.conftest import REPOSITORY, Running, clean_environment, run_platform, until
from tests.platform_.scripts import vinery
from tests.system.ledger import is_written, outcomes, rows

pytestmark = pytest.mark.system

GUIDE = (REPOSITORY / "docs" / "guides" / "backup.md").read_text(encoding="utf-8")


def guide_command(start: str, **values: str) -> list[str]:
    """The words of a command of the guide, with these values for its placeholders."""
    [line] = set(re.findall(rf"^ *vinery ({start}.*)$", GUIDE, re.MULTILINE))
    return [values.get(word, word) for word in line.split()]


def ask(platform: Running, **fields: object) -> httpx.Response:
    return httpx.post(
        f"{platform.base_url}/v1/completions",
        headers={"authorization": f"Bearer {platform.api_key}"},
        json={"model": "tiny-chat", "prompt": "one two", "max_tokens": 3, **fields},
        timeout=60,
    )


async def back_up_during_requests(platform: Running, folder: Path) -> list[str]:
    """Returns the ids of the requests that were answered, and stored, before the backup began."""
    early = [(await asyncio.to_thread(ask, platform)) for _ in range(5)]
    until(lambda: is_written(platform))
    running = [
        asyncio.create_task(asyncio.to_thread(ask, platform, max_tokens=200, ignore_eos=True))
        for _ in range(8)
    ]
    words = guide_command("backup FILE", FILE="one.tar.gz")
    made = await asyncio.to_thread(vinery, *words, environment=platform.environment, cwd=folder)
    assert made.returncode == 0, made.stderr
    await asyncio.gather(*running)
    return [answer.headers["x-request-id"] for answer in early]


def lose_database(home: Path, environment: Mapping[str, str]) -> None:
    if server := environment.get("DATABASE_URL"):
        with psycopg.connect(server) as connection:
            connection.execute("DROP SCHEMA public CASCADE")
            connection.execute("CREATE SCHEMA public")
    for path in home.glob("vinery.sqlite3*"):
        path.unlink()


@pytest.fixture(params=["usual", "postgresql"])
def server(request: pytest.FixtureRequest) -> dict[str, str]:
    """Another database than the usual one of the tests, if it is not that of PostgreSQL."""
    if request.param == "usual" or stores.IS_SCALED:
        return {}
    if not os.environ.get("VINERY_TEST_POSTGRES_URL"):
        pytest.skip("VINERY_TEST_POSTGRES_URL is not set, so there is no PostgreSQL to test with")
    return {"DATABASE_URL": stores.new_postgres_database()}


def test_a_lost_database_comes_back_with_its_keys_and_balanced_usage(
    tmp_path: Path, server: dict[str, str]
) -> None:
    home = tmp_path / "home"
    with run_platform(home, server) as platform:
        early = asyncio.run(back_up_during_requests(platform, tmp_path))
        words = guide_command("restore FILE", FILE="one.tar.gz")
        refused = vinery(*words, "--yes", environment=platform.environment, cwd=tmp_path)
        key, environment = platform.api_key, platform.environment
    assert refused.returncode == 2
    assert "is in use" in refused.stderr
    archive = tmp_path / "one.tar.gz"
    assert archive.stat().st_mode & 0o777 == 0o600

    lose_database(home, environment)
    unable = vinery("key", "list", environment=environment, cwd=tmp_path)
    checked = vinery(
        *guide_command("backup --verify", FILE="one.tar.gz"), environment=environment, cwd=tmp_path
    )
    restored = vinery(*words, "--yes", environment=environment, cwd=tmp_path)

    assert unable.returncode != 0
    assert checked.returncode == 0, checked.stderr
    assert restored.returncode == 0, restored.stderr
    assert "audit log is intact" in restored.stdout
    with run_platform(home, server) as platform:
        assert platform.api_key == key
        assert ask(platform).status_code == 200
        until(lambda: is_written(platform) and len(rows(platform)) >= 5 + 1)
        stored = [row.request_id for row in rows(platform)]
        assert set(early) <= set(stored)
        assert len(set(stored)) == len(stored)
        assert set(outcomes(platform)) <= {"ok", "interrupted"}
        balanced = vinery("usage", "verify", environment=platform.environment, cwd=tmp_path)
        assert balanced.returncode == 0, balanced.stdout


def test_a_restore_is_undone(tmp_path: Path) -> None:
    home, clean = tmp_path / "home", clean_environment()
    environment = clean | prepared_home.copy_to(home, clean)
    made = vinery("backup", "one.tar.gz", environment=environment, cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    later = vinery("project", "create", "later", environment=environment, cwd=tmp_path)
    assert later.returncode == 0, later.stderr

    words = guide_command("restore FILE", FILE="one.tar.gz")
    restored = vinery(*words, "--yes", environment=environment, cwd=tmp_path)
    without = vinery("project", "list", environment=environment, cwd=tmp_path)
    [kept] = home.glob("before-restore-*")
    words = guide_command("restore --undo", FOLDER=str(kept))
    undone = vinery(*words, "--yes", environment=environment, cwd=tmp_path)
    again = vinery("project", "list", environment=environment, cwd=tmp_path)

    assert (restored.returncode, undone.returncode) == (0, 0), restored.stderr + undone.stderr
    assert str(kept) in restored.stdout
    assert "later" not in without.stdout
    assert "later" in again.stdout
    assert not kept.exists()
