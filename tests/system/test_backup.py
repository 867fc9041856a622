"""A backup of a running platform, restored after its database is lost.

The commands are those of docs/guides/backup.md.
"""

import re
import subprocess
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests import forked_commands
from tests.conftest import REPOSITORY, Running, run_platform, until
from tests.contract.tiny_chat import CAPITAL
from tests.system.clients import MODEL, command, complete, openai_of
from tests.system.ledger import is_written, outcomes, rows

GUIDE = (REPOSITORY / "docs" / "guides" / "backup.md").read_text(encoding="utf-8")


def vinery(
    environment: Mapping[str, str], start: str, *more: str, **values: str
) -> subprocess.CompletedProcess[str]:
    """Run the guide's command with these first words, with these values for the placeholders."""
    [line] = set(re.findall(rf"^ *vinery ({start}.*)$", GUIDE, re.MULTILINE))
    words = [values.get(word, word) for word in line.split()]
    return forked_commands.run(*words, *more, environment=environment)


def back_up_during_requests(platform: Running, archive: str) -> list[str]:
    """Returns the ids of the requests that were answered, and stored, before the backup began."""
    early = [complete(platform) for _ in range(5)]
    until(lambda: is_written(platform))
    with ThreadPoolExecutor(4) as clients:
        long = {"max_tokens": 200, "ignore_eos": True}
        asked = [clients.submit(complete, platform, **long) for _ in range(4)]
        made = vinery(platform.environment, "backup FILE", FILE=archive)
        assert made.returncode == 0, made.stderr
        assert {each.result().status_code for each in asked} == {200}
    return [answer.headers["x-request-id"] for answer in early]


def lose_state(home: Path, environment: Mapping[str, str]) -> None:
    """Rename the home, and drop the database."""
    if server := environment.get("DATABASE_URL"):
        with psycopg.connect(server) as connection:
            connection.execute("DROP SCHEMA public CASCADE")
            connection.execute("CREATE SCHEMA public")
    home.rename(home.with_name("old"))


def remember(platform: Running) -> tuple[Any, Any]:
    """A stored response, and a conversation with another one."""
    v1 = openai_of(platform)
    conversation = v1.conversations.create(items=[{"role": "user", "content": CAPITAL}])
    v1.responses.create(model=MODEL, input="And again?", conversation=conversation.id)
    return v1.responses.create(model=MODEL, input=CAPITAL), conversation


def goes_on(platform: Running, response: Any, conversation: Any) -> bool:
    """Whether both are read as they were, and their continuations begin with what they have."""
    v1 = openai_of(platform)
    assert v1.responses.retrieve(response.id) == response
    assert v1.conversations.retrieve(conversation.id) == conversation
    assert len(v1.conversations.items.list(conversation.id).data) == 3
    for before in ({"previous_response_id": response.id}, {"conversation": conversation.id}):
        next_one: Any = v1.responses.create(model=MODEL, input="Once more?", extra_body=before)
        bare: Any = v1.responses.create(model=MODEL, input="Once more?")
        assert next_one.usage.input_tokens > bare.usage.input_tokens
    return True


@pytest.mark.stores
def test_a_lost_database_comes_back_with_its_keys_and_balanced_usage(tmp_path: Path) -> None:
    home, archive = tmp_path / "home", tmp_path / "one.tar.gz"
    with run_platform(home) as platform:
        remembered = remember(platform)
        early = back_up_during_requests(platform, str(archive))
        environment = platform.environment
        refused = vinery(environment, "restore FILE", FILE=str(archive))
        key = platform.api_key
    assert refused.returncode == 2
    assert "is in use" in refused.stderr
    assert archive.stat().st_mode & 0o777 == 0o600

    filled = vinery(environment, "restore FILE", FILE=str(archive))
    lose_state(home, environment)
    unable = forked_commands.run("key", "list", environment=environment)
    checked = vinery(environment, "backup --verify", FILE=str(archive))
    restored = vinery(environment, "restore FILE", FILE=str(archive))

    assert filled.returncode == 1
    assert "is not empty: it has bootstrap.json" in filled.stderr
    assert unable.returncode != 0
    assert checked.returncode == 0, checked.stderr
    assert restored.returncode == 0, restored.stderr
    assert "audit log is intact" in restored.stdout
    with run_platform(home) as platform:
        assert platform.api_key == key
        assert complete(platform).status_code == 200
        assert goes_on(platform, *remembered)
        until(lambda: is_written(platform) and len(rows(platform)) >= 5 + 1)
        stored = [row.request_id for row in rows(platform)]
        assert set(early) <= set(stored)
        assert len(set(stored)) == len(stored)
        assert set(outcomes(platform)) <= {"ok", "interrupted"}
        command(platform, "usage", "verify")
