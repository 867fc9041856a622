"""A database of the last release is upgraded: no record is lost, and the schema is current."""

import gzip
import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from allauth.socialaccount.models import SocialAccount
from django.apps import apps
from django.core.management import call_command
from django.db import connections
from django.db.migrations.recorder import MigrationRecorder
from django.db.utils import load_backend

from tests import prepared_home, stores
from tests.conftest import REPOSITORY, clean_environment
from vinery_accounts.access import audit, changes
from vinery_accounts.alerts import webhooks
from vinery_accounts.base.actors import SYSTEM, Actor, acting_as
from vinery_accounts.base.errors import KeyRefused
from vinery_accounts.captures.store import decrypt
from vinery_accounts.keys.table import KeyTable
from vinery_accounts.models import Capture, Limit, UsageRecord, User, Webhook
from vinery_accounts.usage.reports import Question, totals
from vinery_accounts.usage.upkeep import verify
from vinery_serving.gateway.state.model_rows import read_models
from vinery_serving.models.engine_status import EngineState
from vinery_serving.models.models import ServedModel

RELEASES = REPOSITORY / "tests" / "releases"
EXPECTED: dict[str, Any] = json.loads((RELEASES / "0.1.json").read_text())
# Models of the release, by name: the files of each folder, and the task. The dump has one more,
# `tiny-chat`, whose folder is not on this machine.
SHIPPED = REPOSITORY / "models"
GRAPH = "openvino_model.xml"
SERVED: dict[str, tuple[Sequence[Path], str]] = {
    "chats": (list((SHIPPED / "tiny-chat").iterdir()), "chat"),
    "completes": ([SHIPPED / "tiny-chat" / GRAPH], "completion"),
    "sees": (list((SHIPPED / "tiny-vision").iterdir()), "vision"),
    "embeds": ([SHIPPED / "tiny-embed" / GRAPH], "embeddings"),
    "ranks": ([SHIPPED / "tiny-rerank" / GRAPH], "rerank"),
    "classifies": ([SHIPPED / "tiny-rerank" / GRAPH], "chat"),  # Vinery does not serve it
    "broken": ([], "completion"),
}
TASKS = {"tiny-chat": "chat"} | {name: task for name, (_, task) in SERVED.items()}
OPTIONS = {"max_waiting": 7}
LABELS = {"id2label": {str(number): f"LABEL_{number}" for number in range(3)}}
NO_LAYER = '<net><layers/><edges><edge from-layer="1" to-layer="2"/></edges></net>'
MARCH = datetime(2026, 3, 1, tzinfo=UTC), datetime(2026, 3, 4, tzinfo=UTC)


@contextmanager
def default_database(file: Path, blocker: Any) -> Iterator[Any]:
    """Use this SQLite file as the default database of this thread."""
    usual = connections["default"]
    backend = load_backend("django.db.backends.sqlite3")
    options = {"ENGINE": "django.db.backends.sqlite3", "NAME": str(file), "OPTIONS": {}}
    connection = backend.DatabaseWrapper({**usual.settings_dict, **options}, alias="default")
    with blocker.unblock():
        connections["default"] = connection
        try:
            yield connection
        finally:
            connection.close()
            connections["default"] = usual


def add_models(release: sqlite3.Connection, parent: Path) -> None:
    """Insert the models of `SERVED` as the release wrote them; every second one is unloaded."""
    for number, (name, (files, _)) in enumerate(SERVED.items()):
        folder = parent / name
        folder.mkdir()
        for file in files:
            (folder / file.name).symlink_to(file)
        row = (name, str(folder), "CPU", json.dumps(OPTIONS), number % 2 == 0)
        release.execute(
            "INSERT INTO serving_servedmodel (name, folder, device, options, is_loaded, created_at,"
            " updated_at) VALUES (?, ?, ?, ?, ?, '2026-03-01', '2026-03-01')",
            row,
        )
    (parent / "classifies" / "config.json").write_text(json.dumps(LABELS))
    (parent / "broken" / GRAPH).write_text(NO_LAYER)


@pytest.fixture(scope="module")
def upgraded(tmp_path_factory: pytest.TempPathFactory, django_db_blocker: Any) -> Iterator[Any]:
    """Return a connection to the database of the release after the upgrade."""
    file = tmp_path_factory.mktemp("upgrade") / "vinery.sqlite3"
    release = sqlite3.connect(file)
    release.executescript(gzip.decompress((RELEASES / "0.1.sql.gz").read_bytes()).decode())
    add_models(release, file.parent)
    release.commit()
    release.close()
    with default_database(file, django_db_blocker) as connection:
        call_command("migrate", verbosity=0)
        yield connection


@pytest.fixture(autouse=True)
def secrets_of_the_release(settings: Any) -> None:
    settings.SECRET_KEY = EXPECTED["secret_key"]
    settings.VINERY_KEY_PEPPERS = {1: EXPECTED["pepper"].encode()}


@pytest.mark.usefixtures("upgraded")
class TestUpgrade:
    def test_no_record_is_lost_and_the_audit_log_verifies_to_its_newest_entry(self) -> None:
        found = {name: apps.get_model(name)._base_manager.count() for name in EXPECTED["num_rows"]}
        assert found == EXPECTED["num_rows"] | {"serving.ServedModel": 1 + len(SERVED)}

        verdict = audit.verify(expected=EXPECTED["newest_hash"])
        assert verdict.broken is None
        assert verdict.num_entries == EXPECTED["num_rows"]["accounts.AuditEntry"]

    def test_keys_keep_their_state_and_permissions(self) -> None:
        table = KeyTable()
        table.refresh()
        reasons = {}
        for name, secret in EXPECTED["keys"].items():
            try:
                table.authenticate(f"Bearer {secret}")
            except KeyRefused as error:
                reasons[name] = error.reason.value

        assert reasons == {"paused": "paused", "revoked": "revoked"}
        grants = table.authenticate(f"Bearer {EXPECTED['keys']['restricted']}").grants
        assert grants.scopes == {"inference"}
        assert grants.models == {"tiny-chat"}
        assert grants.endpoints == {"chat/completions"}
        assert [str(network) for network in grants.networks or ()] == ["10.0.0.0/8"]

    def test_confirmed_addresses_and_limits_stay(self) -> None:
        assert User.objects.get(email="alice@example.org").is_email_confirmed

        columns = ("scope", "metric", "window", "amount", "time_zone", "week_start", "alert_at")
        assert set(map(str, Limit.objects.values_list(*columns))) == {
            "('project', 'tokens', 'day', 1000, 'Europe/Berlin', 'monday', [50, 100])",
            "('key', 'requests', 'minute', 60, 'UTC', 'monday', None)",
            "('platform', 'concurrency', 'none', 16, 'UTC', 'monday', None)",
            "('model', 'weighted_tokens', 'week', 1000000, 'UTC', 'sunday', None)",
        }

    def test_usage_reports_agree_with_the_records(self) -> None:
        figures = totals(Question(since=MARCH[0], until=MARCH[1], visible=None)).figures
        assert figures.num_requests == UsageRecord.objects.count()
        assert {name: getattr(figures, name) for name in EXPECTED["usage"]} == EXPECTED["usage"]
        assert [day.differences for day in verify(*MARCH) if day.differences] == []

    def test_encrypted_texts_and_secrets_can_be_read(self) -> None:
        assert b"Write to" in decrypt(Capture.stored.get()).body
        assert list(webhooks._secrets(Webhook.objects.get())) == [EXPECTED["webhook_secret"]]

    def test_models_keep_their_options_and_serve_all_keys_as_before(self) -> None:
        (entries, *_), _ = read_models()
        assert entries["tiny-chat"].options.max_running == 4
        assert {entries[name].options.max_waiting for name in SERVED} == {OPTIONS["max_waiting"]}
        assert {name: entry.task for name, entry in entries.items()} == TASKS
        assert all(entry.is_visible_to(None) for entry in entries.values())
        unloaded = {entry.name for entry in entries.values() if not entry.is_loaded}
        assert unloaded == {"completes", "embeds", "classifies"}

        for model in ServedModel.objects.all():
            assert (model.is_pinned, model.idle_s, model.source) == (False, None, {})
            assert model.status.state == EngineState.UNLOADED


@pytest.mark.django_db
def test_an_address_that_an_owner_gave_before_the_upgrade_is_not_confirmed() -> None:
    users = User.objects.create_superuser("root"), User.objects.create_user("owner")
    root, owner = (Actor(user.pk, str(user)) for user in users)

    def given(name: str, first: Actor, *later: Actor) -> User:
        with acting_as(first):
            user = changes.add_user(name, email=f"{name}@old.example")
        for giver in later:
            with acting_as(giver):
                changes.change(user, email=f"{name}@new.example")
        return user

    by_owner = {given("by-owner", owner), given("changed-by-owner", root, owner)}
    for name, givers in (("by-root", [root]), ("by-command", [SYSTEM]), ("fixed", [owner, root])):
        given(name, *givers)
    linked = given("linked", owner)
    SocialAccount.objects.create(user=linked, provider="issuer", uid="1")

    migration = import_module("vinery_accounts.migrations.0002_since_0_1")
    migration.withdraw_confirmations(apps, None)

    assert set(User.objects.filter(is_email_confirmed=False)) == by_owner


def test_a_database_between_releases_is_upgraded_as_that_of_a_release(
    upgraded: Any, tmp_path: Path, django_db_blocker: Any
) -> None:
    """The database has the migrations that a later migration replaces, and their tables."""
    file = tmp_path / "vinery.sqlite3"
    release = sqlite3.connect(file)
    release.executescript(gzip.decompress((RELEASES / "0.1.sql.gz").read_bytes()).decode())
    release.close()
    with default_database(file, django_db_blocker) as connection:
        for app in ("accounts", "serving"):
            call_command("migrate", app, "0002", verbosity=0)
            replacing = import_module(f"{apps.get_app_config(app).name}.migrations.0002_since_0_1")
            records = MigrationRecorder(connection)
            records.record_unapplied(app, "0002_since_0_1")
            for _, name in replacing.Migration.replaces:
                records.record_applied(app, name)
        User.objects.filter(email="alice@example.org").update(is_email_confirmed=False)

        call_command("migrate", verbosity=0)

        assert schema(connection) == schema(upgraded)
        assert not User.objects.get(email="alice@example.org").is_email_confirmed


@pytest.mark.skipif(stores.IS_SCALED, reason="a new home has no SQLite file")
def test_the_schema_is_that_of_a_new_home(
    upgraded: Any, tmp_path: Path, django_db_blocker: Any
) -> None:
    """Which this run of the tests has migrated from nothing."""
    schema_after_upgrade = schema(upgraded)
    prepared_home.copy_to(tmp_path / "home", clean_environment())

    with default_database(tmp_path / "home" / "vinery.sqlite3", django_db_blocker) as new:
        assert schema(new) == schema_after_upgrade


def schema(connection: Any) -> dict[str, Any]:
    """Columns, whose order does not matter, constraints and indexes of all tables."""
    described = {}
    with connection.cursor() as cursor:
        for table in connection.introspection.table_names(cursor):
            cursor.execute(f"PRAGMA table_info({table})")
            columns = {row[1]: row[2:] for row in cursor.fetchall()}
            constraints = connection.introspection.get_constraints(cursor, table)
            cursor.execute(
                "SELECT name, sql FROM sqlite_master WHERE tbl_name = %s AND type = 'index'",
                [table],
            )
            indexes = {name: sql for name, sql in cursor.fetchall() if sql}
            described[table] = {
                "columns": columns,
                "constraints": {_key(name, each): each for name, each in constraints.items()},
                "indexes": indexes,
            }
    return described


def _key(name: str, constraint: dict[str, Any]) -> str:
    """Return the name of a constraint. SQLite and Django number the unnamed ones."""
    is_named = not name.startswith(("__unnamed", "sqlite_autoindex", "fk_"))
    return name if is_named else f"{sorted(constraint['columns'])} {constraint['foreign_key']}"
