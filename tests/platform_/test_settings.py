"""Django's settings in different environments."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.platform_ import scripts
from vinery_serving.core.field_limits import FIELD_LIMITS
from vinery_serving.media.decoding import DecodeLimits
from vinery_serving.media.fetching import FetchLimits

_PRINT = """
import json, sys
from vinery import settings
print(json.dumps({name: getattr(settings, name) for name in sys.argv[1:]}, default=str))
"""


@pytest.fixture
def home(tmp_path: Path) -> str:
    (tmp_path / "home").mkdir()
    return str(tmp_path / "home")


def settings_with(*names: str, **environment: str) -> dict[str, Any]:
    """Return the values of these settings in a process with this environment."""
    result = scripts.run_python("-c", _PRINT, *names, environment=environment)
    assert result.returncode == 0, result.stderr
    values: dict[str, Any] = json.loads(result.stdout)
    return values


def test_no_setting_is_required(home: str) -> None:
    values = settings_with(
        *("DEBUG", "VINERY_AUTH_ENABLED", "ALLOWED_HOSTS", "DATABASES", "VINERY_MAX_BODY_BYTES"),
        VINERY_HOME=home,
    )

    assert values["DEBUG"] is False
    assert values["VINERY_AUTH_ENABLED"] is True
    assert values["ALLOWED_HOSTS"] == ["127.0.0.1", "[::1]", "localhost"]
    assert values["DATABASES"]["default"]["NAME"] == f"{home}/vinery.sqlite3"
    assert values["DATABASES"]["default"]["OPTIONS"]["transaction_mode"] == "IMMEDIATE"
    assert values["VINERY_MAX_BODY_BYTES"] == 64 * 1024 * 1024


def test_folders_are_in_the_home_folder(home: str) -> None:
    names = ("VINERY_RUN_DIR", "VINERY_CACHE_DIR", "VINERY_USAGE_DIR", "STATIC_ROOT")

    values = settings_with(*names, VINERY_HOME=home)

    assert [values[name] for name in names] == [
        f"{home}/{folder}" for folder in ("run", "cache", "usage", "static")
    ]


def test_without_tls_cookies_work_on_http(home: str) -> None:
    values = settings_with("SESSION_COOKIE_SECURE", "SECURE_SSL_REDIRECT", VINERY_HOME=home)

    assert set(values.values()) == {False}


def test_a_public_https_url_hardens_everything(home: str) -> None:
    values = settings_with(
        *("SESSION_COOKIE_SECURE", "CSRF_COOKIE_SECURE", "SECURE_SSL_REDIRECT"),
        *("SECURE_HSTS_SECONDS", "CSRF_TRUSTED_ORIGINS", "ALLOWED_HOSTS"),
        VINERY_HOME=home,
        VINERY_HOST="0.0.0.0",
        VINERY_PUBLIC_URL="https://vinery.example:8443/",
    )

    assert values["SESSION_COOKIE_SECURE"] is values["CSRF_COOKIE_SECURE"] is True
    assert values["SECURE_SSL_REDIRECT"] is True
    assert values["SECURE_HSTS_SECONDS"] > 0
    assert values["CSRF_TRUSTED_ORIGINS"] == ["https://vinery.example:8443"]
    assert "vinery.example" in values["ALLOWED_HOSTS"]
    assert "*" not in values["ALLOWED_HOSTS"]


def test_a_server_for_all_interfaces_cannot_know_its_names(home: str) -> None:
    values = settings_with("ALLOWED_HOSTS", VINERY_HOME=home, VINERY_HOST="0.0.0.0")

    assert values["ALLOWED_HOSTS"] == ["*"]


def test_allowed_hosts_can_be_set(home: str) -> None:
    values = settings_with(
        "ALLOWED_HOSTS", VINERY_HOME=home, VINERY_ALLOWED_HOSTS="a.example, b.example"
    )

    assert values["ALLOWED_HOSTS"] == ["a.example", "b.example"]


def test_passwords_are_reset_by_mail_only_if_the_public_name_is_known(home: str) -> None:
    def is_offered(**environment: str) -> bool:
        return bool(
            settings_with("VINERY_PASSWORD_RESET", VINERY_HOME=home, **environment).popitem()[1]
        )

    mail = {"VINERY_EMAIL_URL": "smtp://mail.example"}
    anywhere = {"VINERY_HOST": "0.0.0.0"}
    assert not is_offered()
    assert is_offered(**mail)
    assert not is_offered(**mail, **anywhere)
    assert is_offered(**mail, **anywhere, VINERY_PUBLIC_URL="https://vinery.example")


def test_postgresql_gets_a_pool(home: str) -> None:
    values = settings_with(
        "DATABASES", VINERY_HOME=home, DATABASE_URL="postgres://u:p@db:5433/vinery?sslmode=require"
    )

    database = values["DATABASES"]["default"]
    assert (database["HOST"], database["PORT"], database["NAME"]) == ("db", 5433, "vinery")
    assert database["OPTIONS"]["sslmode"] == "require"
    assert database["OPTIONS"]["pool"]["max_size"] > 1
    assert database["OPTIONS"]["connect_timeout"] == 5
    assert database["CONN_MAX_AGE"] == 0


def test_the_database_url_sets_the_connect_timeout_of_postgresql(home: str) -> None:
    url = "postgres://u:p@db/vinery?connect_timeout=2"
    values = settings_with("DATABASES", VINERY_HOME=home, DATABASE_URL=url)

    assert int(values["DATABASES"]["default"]["OPTIONS"]["connect_timeout"]) == 2


def test_a_sqlite_url_keeps_the_options_of_a_server(home: str, tmp_path: Path) -> None:
    values = settings_with(
        "DATABASES", VINERY_HOME=home, DATABASE_URL=f"sqlite:///{tmp_path}/other.sqlite3"
    )

    database = values["DATABASES"]["default"]
    assert database["NAME"] == f"{tmp_path}/other.sqlite3"
    assert "journal_mode=WAL" in database["OPTIONS"]["init_command"]


def test_redis_carries_messages_if_it_is_configured(home: str) -> None:
    values = settings_with(
        *("CELERY_BROKER_URL", "CELERY_BROKER_TRANSPORT", "CHANNEL_LAYERS"),
        VINERY_HOME=home,
        REDIS_URL="redis://cache:6379/1",
    )

    assert values["CELERY_BROKER_URL"] == "redis://cache:6379/1"
    assert values["CELERY_BROKER_TRANSPORT"] is None
    assert "Redis" in values["CHANNEL_LAYERS"]["default"]["BACKEND"]


def test_a_database_password_may_be_read_from_a_file(home: str, tmp_path: Path) -> None:
    (tmp_path / "url").write_text("postgres://u:p@db/vinery\n")

    values = settings_with("DATABASES", VINERY_HOME=home, DATABASE_URL_FILE=str(tmp_path / "url"))

    assert values["DATABASES"]["default"]["HOST"] == "db"


def test_a_transaction_that_reads_and_then_writes_waits_for_its_lock(home: str) -> None:
    """The reason for IMMEDIATE: with DEFERRED the second transaction fails at once."""
    code = """
import threading
from vinery.cli.shape import load_django
load_django()
from django.db import connection, transaction
with connection.cursor() as cursor:
    cursor.execute("CREATE TABLE counter (n INTEGER)")
    cursor.execute("INSERT INTO counter VALUES (0)")
def count():
    for _ in range(25):
        with transaction.atomic(), connection.cursor() as cursor:
            n = cursor.execute("SELECT n FROM counter").fetchone()[0]
            cursor.execute("UPDATE counter SET n = %s", [n + 1])
    connection.close()
threads = [threading.Thread(target=count) for _ in range(4)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
with connection.cursor() as cursor:
    print(cursor.execute("SELECT n FROM counter").fetchone()[0])
"""

    result = scripts.run_python("-c", code, environment={"VINERY_HOME": home})

    assert result.stdout.strip() == "100", result.stderr


def test_a_setting_raises_the_limit_of_a_field(home: str) -> None:
    values = settings_with("VINERY_FIELD_LIMITS", VINERY_HOME=home, VINERY_MAX_TOOLS="200")

    limits = values["VINERY_FIELD_LIMITS"]
    assert limits["tools"] == 200
    assert limits == {limit.name: limit.default for limit in FIELD_LIMITS} | {"tools": 200}


def test_settings_limit_fetching_and_decoding_and_are_else_the_defaults(home: str) -> None:
    names = ("VINERY_FETCH_LIMITS", "VINERY_DECODE_LIMITS")
    unset = settings_with(*names, VINERY_HOME=home)
    assert FetchLimits(**unset["VINERY_FETCH_LIMITS"]) == FetchLimits()
    assert DecodeLimits(**unset["VINERY_DECODE_LIMITS"]) == DecodeLimits()

    values = settings_with(
        *names,
        VINERY_HOME=home,
        VINERY_MEDIA_FETCHED_MB="10",
        VINERY_MEDIA_CACHE_MB="0",
        VINERY_MEDIA_DECODE_MS="2500",
        VINERY_MEDIA_FRAMES="8",
    )

    fetching = FetchLimits(**values["VINERY_FETCH_LIMITS"])
    assert (fetching.max_bytes_of_request, fetching.cache_bytes) == (10 * 2**20, 0)
    decoding = DecodeLimits(**values["VINERY_DECODE_LIMITS"])
    assert (decoding.cpu_s, decoding.max_frames) == (2.5, 8)


@pytest.mark.parametrize(
    ("variable", "value", "words"),
    [
        ("VINERY_MAX_TOOLS", "0", "from 1 to"),
        ("VINERY_MAX_TOOLS", "many", "not a number"),
        ("VINERY_MAX_JSON_LEVELS", "5000", "from 1 to 200"),
        ("VINERY_MEDIA_FETCHES", "0", "from 1 to 1024"),
        ("VINERY_MEDIA_FRAMES", "257", "from 1 to 256"),
        ("VINERY_MEDIA_CACHE_MB", "-1", "from 0 to"),
        ("VINERY_MEDIA_DECODE_MS", "1.8", "not a number"),
    ],
)
def test_a_wrong_limit_is_refused(home: str, variable: str, value: str, words: str) -> None:
    environment = {"VINERY_HOME": home, variable: value}
    result = scripts.run_python("-c", _PRINT, environment=environment)

    assert result.returncode != 0
    assert f"{variable}={value}" in result.stderr.replace("'", "")
    assert words in result.stderr
