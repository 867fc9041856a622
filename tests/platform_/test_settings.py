"""Django's settings in different environments."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.platform_ import scripts
from tests.tables import table
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


MAIL = {"VINERY_EMAIL_URL": "smtp://mail.example"}
PUBLIC = {"VINERY_HOST": "0.0.0.0", "VINERY_PUBLIC_URL": "https://vinery.example:8443/"}


@table(
    "environment, expected",
    [
        (
            {},
            {
                "DEBUG": False,
                "VINERY_AUTH_ENABLED": True,
                "VINERY_MAX_BODY_BYTES": 64 * 1024 * 1024,
                "SESSION_COOKIE_SECURE": False,
                "SECURE_SSL_REDIRECT": False,  # without TLS
                "ALLOWED_HOSTS": ["127.0.0.1", "[::1]", "localhost"],
                "DATABASES.default.NAME": "{home}/vinery.sqlite3",
                "DATABASES.default.OPTIONS.transaction_mode": "IMMEDIATE",
                "VINERY_RUN_DIR": "{home}/run",
                "VINERY_CACHE_DIR": "{home}/cache",
                "VINERY_USAGE_DIR": "{home}/usage",
                "STATIC_ROOT": "{home}/static",
                "VINERY_PASSWORD_RESET": False,
            },
        ),
        (
            PUBLIC,
            {
                "SESSION_COOKIE_SECURE": True,
                "CSRF_COOKIE_SECURE": True,
                "SECURE_SSL_REDIRECT": True,
                "CSRF_TRUSTED_ORIGINS": ["https://vinery.example:8443"],
                "ALLOWED_HOSTS": ["127.0.0.1", "[::1]", "localhost", "vinery.example"],
            },
        ),
        ({"VINERY_HOST": "0.0.0.0"}, {"ALLOWED_HOSTS": ["*"]}),  # it cannot know its names
        ({"VINERY_ALLOWED_HOSTS": "a.example, b"}, {"ALLOWED_HOSTS": ["a.example", "b"]}),
        # Passwords are reset by mail only if the public name is known.
        (MAIL, {"VINERY_PASSWORD_RESET": True}),
        (MAIL | {"VINERY_HOST": "0.0.0.0"}, {"VINERY_PASSWORD_RESET": False}),
        (MAIL | PUBLIC, {"VINERY_PASSWORD_RESET": True}),
        (
            {"DATABASE_URL": "postgres://u:p@db:5433/vinery?sslmode=require"},
            {
                "DATABASES.default.HOST": "db",
                "DATABASES.default.PORT": 5433,
                "DATABASES.default.NAME": "vinery",
                "DATABASES.default.OPTIONS.sslmode": "require",
                "DATABASES.default.OPTIONS.connect_timeout": 5,
                "DATABASES.default.CONN_MAX_AGE": 0,
            },
        ),
        (
            {"DATABASE_URL": "postgres://u:p@db/vinery?connect_timeout=2"},
            {"DATABASES.default.OPTIONS.connect_timeout": 2},
        ),
        (
            {"DATABASE_URL": "sqlite:////tmp/other.sqlite3"},
            {"DATABASES.default.NAME": "/tmp/other.sqlite3"},
        ),
        (
            {"REDIS_URL": "redis://cache:6379/1"},
            {"CELERY_BROKER_URL": "redis://cache:6379/1", "CELERY_BROKER_TRANSPORT": None},
        ),
    ],
)
def test_settings_follow_from_the_environment(
    home: str, environment: dict[str, str], expected: dict[str, object]
) -> None:
    names = {name.partition(".")[0] for name in expected}
    values = settings_with(*names, VINERY_HOME=home, **environment)

    def found(name: str) -> object:
        value: Any = values
        for part in name.split("."):
            value = value[part]
        return value.replace(home, "{home}") if isinstance(value, str) else value

    assert {name: found(name) for name in expected} == expected


def test_a_public_https_url_and_servers_have_more_settings(home: str) -> None:
    values = settings_with("SECURE_HSTS_SECONDS", VINERY_HOME=home, **PUBLIC)
    assert values["SECURE_HSTS_SECONDS"] > 0

    url = {"DATABASE_URL": "postgres://u:p@db/vinery", "REDIS_URL": "redis://cache"}
    values = settings_with("DATABASES", "CHANNEL_LAYERS", VINERY_HOME=home, **url)
    assert values["DATABASES"]["default"]["OPTIONS"]["pool"]["max_size"] > 1
    assert "Redis" in values["CHANNEL_LAYERS"]["default"]["BACKEND"]

    values = settings_with("DATABASES", VINERY_HOME=home, DATABASE_URL="sqlite:////tmp/a.sqlite3")
    assert "journal_mode=WAL" in values["DATABASES"]["default"]["OPTIONS"]["init_command"]


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

    defaults = {limit.name: limit.default for limit in FIELD_LIMITS}
    assert values["VINERY_FIELD_LIMITS"] == defaults | {"tools": 200}


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


@table(
    "variable, value, words",
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
