"""A web process starts without the database: with sealed copies of its tables, or not at all."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.db import OperationalError

from tests.accounts.row_builders import stored_limit
from tests.conftest import until_in_loop as until
from tests.tables import table
from vinery_accounts.access import changes
from vinery_accounts.base.errors import KeyRefused, Refusal
from vinery_accounts.keys import lifecycle
from vinery_accounts.keys.table import KeyTable
from vinery_accounts.limits.rulebook import RuleBook, Snapshot
from vinery_accounts.models import User
from vinery_serving.gateway.state import runtime as state
from vinery_serving.gateway.state.model_rows import Copies, Tables, read_models
from vinery_serving.gateway.state.runtime import Runtime
from vinery_serving.media.tables.models import MediaFolder, MediaLimit, MediaRule
from vinery_serving.media.tables.policies import MediaPolicies
from vinery_serving.models.engine_status import EngineState, EngineStatus
from vinery_serving.models.models import ModelAlias, ServedModel


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, settings: Any) -> Path:
    settings.VINERY_CACHE_DIR = tmp_path
    return tmp_path


@pytest.fixture
def is_database_back(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """A database that answers nothing until this is set."""
    is_back = threading.Event()
    monkeypatch.setattr(state, "commit_state", lambda: is_back.wait(120))
    monkeypatch.setattr(state, "_FIRST_ANSWER_S", 0.01)
    monkeypatch.setattr(state, "_ASK_AGAIN_S", 0.01)
    yield is_back
    is_back.set()


MakeRuntime = Callable[[], Runtime]


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> MakeRuntime:
    """Makes a runtime whose tables are read in no time, once the database answers."""

    async def nothing() -> None:
        """Read nothing."""

    def make() -> Runtime:
        runtime = Runtime()
        monkeypatch.setattr(runtime, "_recover_usage", lambda: None)
        monkeypatch.setattr(runtime.workers, "live_server", lambda: None)
        monkeypatch.setattr(runtime.workers, "load", lambda _: None)
        for name in ("_refresh_keys", "_refresh_limits", "_follow_models"):
            monkeypatch.setattr(runtime, name, nothing)
        return runtime

    return make


def keep_empty_tables() -> None:
    models = {}, frozenset(), {}, frozenset()
    Copies().keep(Tables({}, Snapshot(), {}, models, frozenset()), time.time())  # type: ignore[arg-type]


async def test_without_copies_it_refuses_at_once_and_goes_on_asking(
    started: MakeRuntime, is_database_back: threading.Event
) -> None:
    runtime = started()
    async with asyncio.timeout(60):
        assert not await runtime.start()
        # The database has not answered yet, and nothing waits for it.
        assert not await runtime.start()
        assert runtime.database.report.startswith("unavailable, has not answered in ")
        assert runtime.disk.is_healthy

        is_database_back.set()
        await until(lambda: runtime.is_started)
    assert runtime.database.report.startswith("answered ")
    await runtime.stop()


async def test_with_copies_it_serves_and_says_how_old_they_are(
    started: MakeRuntime, is_database_back: threading.Event, caplog: pytest.LogCaptureFixture
) -> None:
    keep_empty_tables()
    runtime = started()
    async with asyncio.timeout(60):
        assert await runtime.start()
    assert runtime.database.is_unavailable
    assert runtime.accounts_read_at_s > 0
    assert runtime.models_read_at_s > 0
    assert "keys, limits and models are those of 0 s ago" in caplog.text

    is_database_back.set()
    await until(lambda: not runtime.database.is_unavailable)
    await runtime.stop()


@table("error", [OperationalError("no connection"), KeyError(7)])
async def test_an_error_of_the_first_reading_is_no_reason_not_to_serve(
    error: Exception, started: MakeRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail() -> None:
        raise error

    keep_empty_tables()
    runtime = started()
    monkeypatch.setattr(state, "commit_state", lambda: None)
    monkeypatch.setattr(runtime, "_refresh_keys", fail)
    async with asyncio.timeout(60):
        assert await runtime.start()
    await runtime.stop()


@pytest.mark.django_db
@pytest.mark.stores
def test_each_table_is_the_same_from_its_copy(cache: Path) -> None:
    owner = User.objects.create(username="owner")
    networks = ["10.0.0.0/8", "::ffff:192.0.2.0/120"]
    key = lifecycle.create_key(owner=owner, name="one", allowed_networks=networks)
    revoked = lifecycle.create_key(owner=owner, name="two")
    lifecycle.revoke_key(revoked.key)
    stored_limit("key", key.key.pk, window="week", week_start="sunday", time_zone="Europe/Berlin")
    changes.add(MediaRule(host="a.example", networks=["10.0.0.0/8"]))
    changes.add(MediaFolder(folder=str(cache)))
    changes.add(MediaLimit(max_media=3))
    model = ServedModel.objects.create(
        name="m", folder="/m", options={"max_running": 3}, project_ids=[7], is_loaded=True
    )
    EngineStatus.objects.create(model=model, state=EngineState.ASLEEP)
    ModelAlias.objects.create(name="chat", targets={"m": 9})
    keys, book, media = KeyTable(), RuleBook(), MediaPolicies()
    keys.refresh()
    book.follow(book.read())
    media.refresh()
    (entries, failing, aliases, _), _ = read_models()
    models = entries, failing, aliases, frozenset({"m"})

    kept = Tables(keys.entries, book.snapshot, media.levels, models, frozenset({"a digest"}))
    Copies().keep(kept, 7.0)

    found = Copies().read()
    assert found is not None
    tables, read_at_s = found
    assert tables[2:] == kept[2:]
    assert tables.limits.by_key == book.snapshot.by_key
    assert len(tables.limits.by_key) == 1
    assert read_at_s == 7.0
    later = KeyTable()
    later.assume(tables.keys)
    assert later.entries == keys.entries
    caller = later.authenticate(f"Bearer {key.secret}")
    caller.grants.check_address("192.0.2.1")
    assert later.is_valid(key.key.pk)
    with pytest.raises(KeyRefused) as refused:
        later.authenticate(f"Bearer {revoked.secret}")
    assert refused.value.reason is Refusal.REVOKED

    (cache / "sealed" / "media").unlink()
    assert Copies().read() is None
