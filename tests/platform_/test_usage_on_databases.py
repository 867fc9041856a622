"""The books of usage on real databases: an older one that is upgraded, and many writers at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.platform_ import scripts

_UPGRADE = """
import django; django.setup()
from datetime import UTC, datetime
from django.core.management import call_command
from django.db import connection
from django.db.migrations.executor import MigrationExecutor

call_command("migrate", "accounts", "0004", verbosity=0)
old = MigrationExecutor(connection).loader.project_state([("accounts", "0004_key_project")]).apps
old.get_model("accounts", "UsageRecord").objects.bulk_create(
    old.get_model("accounts", "UsageRecord")(
        request_id=f"r{n}", created_at=datetime(2026, 3, 1, n % 24, tzinfo=UTC), user_id=7,
        username="alice", key_name="laptop", model="small", endpoint="x", dialect="v1",
        is_streamed=True, num_output_tokens=n, outcome="ok", http_status=200, total_ms=10.0 + n,
    )
    for n in range(100)
)
call_command("migrate", verbosity=0)
"""

_STORE_AT_ONCE = """
import django; django.setup()
import random
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from django.core.management import call_command
from django.db import connection
from accounts.usage.entries import Admission, Outcome, Settlement
from accounts.usage.store import store_settlements

call_command("migrate", verbosity=0)

def settlement(n):
    admission = Admission(
        request_id=f"r{n}", user_id=n % 3, username="alice", key_id=n % 5, key_name="laptop",
        model=f"m{n % 2}", endpoint="x", dialect="v1", is_streamed=True,
        started_at=datetime(2026, 3, 1, 12, tzinfo=UTC) + timedelta(seconds=7 * n),
    )
    return Settlement(
        admission=admission, outcome=Outcome.OK, http_status=200, num_output_tokens=n,
        total_ms=10.0 + n,
    )

def store(seed):
    # Each of four writers tells everything, in an order and in batches of its own.
    numbers = list(range(200))
    random.Random(seed).shuffle(numbers)
    for at in range(0, 200, 20):
        store_settlements([settlement(n) for n in numbers[at : at + 20]])
    connection.close()

with ThreadPoolExecutor(4) as writers:
    list(writers.map(store, range(4)))
"""

_TELL = """
import django; django.setup()
from datetime import UTC, datetime
from django.db import connection
from accounts.usage.reports import Question, totals
from accounts.usage.verify import verify

period = datetime(2026, 3, 1, tzinfo=UTC), datetime(2026, 3, 2, tzinfo=UTC)
[checked] = verify(*period)
figures = totals(Question(since=period[0], until=period[1], visible=None)).figures
print(connection.vendor, checked.num_rows, len(checked.differences), figures.num_requests,
      figures.num_output_tokens, figures.total_ms.num)
"""


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, str]:
    """The environment of a home with an empty database."""
    home = {"VINERY_HOME": str(tmp_path / "home"), "DJANGO_SETTINGS_MODULE": "vinery.settings"}
    assert scripts.vinery("prepare", environment=home).returncode == 0
    if request.param == "postgresql":
        return home | {"DATABASE_URL": request.getfixturevalue("postgres_url")}
    return home | {"DATABASE_URL": f"sqlite:///{tmp_path}/empty.sqlite3"}


def run(script: str, environment: dict[str, str]) -> list[str]:
    told = scripts.run_python("-c", script, environment=environment)
    assert told.returncode == 0, told.stderr
    return told.stdout.split()


def test_rows_from_before_roll_ups_are_added_up_by_the_upgrade(database: dict[str, str]) -> None:
    run(_UPGRADE, database)

    assert run(_TELL, database)[1:] == ["100", "0", "100", str(sum(range(100))), "100"]


def test_many_writers_at_once_count_each_request_once(database: dict[str, str]) -> None:
    run(_STORE_AT_ONCE, database)

    assert run(_TELL, database)[1:] == ["200", "0", "200", str(sum(range(200))), "200"]
