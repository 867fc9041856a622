"""Django's settings, and those of sign-in and e-mail, in different environments."""

import json
import socket
from pathlib import Path
from typing import Any

import pytest

from tests.platform_ import scripts
from tests.tables import table
from vinery_accounts.signin.issuer import Issuer
from vinery_platform.config import env
from vinery_platform.config.env import SettingError
from vinery_platform.config.servers import issuer_from_env, mail_server_from_env, ray_address
from vinery_serving.core.field_limits import FIELD_LIMITS
from vinery_serving.media.decoding import DecodeLimits
from vinery_serving.media.fetching import FetchLimits

_PRINT = """
import json, sys
from vinery_platform import settings
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


# Under 0.0.0.0 the server cannot know its names, and a password reset by mail needs the name.
CASES = Path(__file__).with_name("settings_of_environments.json")
PUBLIC = {"VINERY_HOST": "0.0.0.0", "VINERY_PUBLIC_URL": "https://vinery.example:8443/"}


@table("environment, expected", json.loads(CASES.read_text()))
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


def test_a_password_may_be_in_a_file_and_servers_have_settings(home: str, tmp_path: Path) -> None:
    (tmp_path / "url").write_text("postgres://u:p@db/vinery\n")

    values = settings_with("DATABASES", VINERY_HOME=home, DATABASE_URL_FILE=str(tmp_path / "url"))
    assert values["DATABASES"]["default"]["HOST"] == "db"

    values = settings_with("SECURE_HSTS_SECONDS", VINERY_HOME=home, **PUBLIC)
    assert values["SECURE_HSTS_SECONDS"] > 0

    url = {"DATABASE_URL": "postgres://u:p@db/vinery", "REDIS_URL": "redis://cache"}
    values = settings_with("DATABASES", "CHANNEL_LAYERS", VINERY_HOME=home, **url)
    assert values["DATABASES"]["default"]["OPTIONS"]["pool"]["max_size"] > 1
    assert "Redis" in values["CHANNEL_LAYERS"]["default"]["BACKEND"]

    values = settings_with("DATABASES", VINERY_HOME=home, DATABASE_URL="sqlite:////tmp/a.sqlite3")
    options = values["DATABASES"]["default"]["OPTIONS"]
    assert "journal_mode=WAL" in options["init_command"]
    assert options["transaction_mode"] == "IMMEDIATE", "a transaction that reads first waits"


def test_settings_limit_fields_fetching_and_decoding_and_are_else_the_defaults(home: str) -> None:
    values = settings_with("VINERY_FIELD_LIMITS", VINERY_HOME=home, VINERY_MAX_TOOLS="200")

    defaults = {limit.name: limit.default for limit in FIELD_LIMITS}
    assert values["VINERY_FIELD_LIMITS"] == defaults | {"tools": 200}

    names = ("VINERY_FETCH_LIMITS", "VINERY_DECODE_LIMITS")
    unset = settings_with(*names, VINERY_HOME=home)
    assert FetchLimits(**unset["VINERY_FETCH_LIMITS"]) == FetchLimits()
    assert DecodeLimits(**unset["VINERY_DECODE_LIMITS"]) == DecodeLimits()

    bytes_ = {"VINERY_MEDIA_FETCHED_MB": "10", "VINERY_MEDIA_CACHE_MB": "0"}
    decoded = {"VINERY_MEDIA_DECODE_MS": "2500", "VINERY_MEDIA_FRAMES": "8"}
    values = settings_with(*names, VINERY_HOME=home, **bytes_, **decoded)

    fetching = FetchLimits(**values["VINERY_FETCH_LIMITS"])
    assert (fetching.max_bytes_of_request, fetching.cache_bytes) == (10 * 2**20, 0)
    decoding = DecodeLimits(**values["VINERY_DECODE_LIMITS"])
    assert (decoding.cpu_s, decoding.max_frames) == (2.5, 8)


@table(
    "address, engine, refusal",
    [
        ("10.0.0.5:6379", "postgresql", ""),
        ("[::1]:6379", "postgresql", ""),
        ("", "postgresql", "RAY_ADDRESS is not set"),
        ("auto", "postgresql", "needs the host:port of Ray's head"),
        ("ray://head:10001", "postgresql", "needs the host:port of Ray's head"),
        ("10.0.0.5:6379", "sqlite3", "needs PostgreSQL"),
    ],
)
def test_ray_needs_the_address_of_its_head_and_a_database_of_several_hosts(
    address: str, engine: str, refusal: str
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_ADDRESS", address)
        assert ray_address({"ENGINE": engine}) == "", "a local placer does not ask Ray"
        patch.setenv("VINERY_PLACEMENT", "ray")
        if refusal:
            with pytest.raises(SettingError, match=refusal):
                ray_address({"ENGINE": engine})
        else:
            assert ray_address({"ENGINE": engine}) == address


@table("name", ["one two", "a,b", "disk=fast", "x" * 254])
def test_a_host_name_that_no_label_can_have_is_refused(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VINERY_HOST_NAME", name)
    with pytest.raises(SettingError, match=r"VINERY_HOST_NAME=.* cannot be used"):
        env.host_name("VINERY_HOST_NAME")
    monkeypatch.setenv("VINERY_HOST_NAME", "")
    assert env.host_name("VINERY_HOST_NAME") == socket.gethostname()


URL = "https://id.example/realms/main"


def issuer(**more: str) -> Issuer | None:
    named = {"ISSUER": URL, "CLIENT_ID": "vinery", "CLIENT_SECRET": "secret"} | more
    with pytest.MonkeyPatch.context() as patch:
        for name, value in named.items():
            patch.setenv(f"VINERY_OIDC_{name}", value)
        return issuer_from_env()


def test_an_issuer_needs_few_settings_and_trusts_no_user_by_default() -> None:
    assert issuer_from_env() is None
    local = issuer(ISSUER="http://127.0.0.1:9000")
    assert local is not None, "it needs no TLS"
    assert local.url == "http://127.0.0.1:9000"
    usual: dict[str, Any] = {"name": "single sign-on", "scopes": ("openid", "profile", "email")}
    usual |= {"makes_accounts": False, "links_by_email": False}
    assert issuer() == Issuer(url=URL, client_id="vinery", client_secret="secret", **usual)


def test_every_setting_of_an_issuer_can_be_set(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("from a file\n")

    named = {"CLIENT_SECRET": "", "CLIENT_SECRET_FILE": str(tmp_path / "secret")}
    named |= {"NAME": "Example", "SCOPES": "email, groups", "ORGANIZATION": "Example"}
    named |= {"SIGN_UP": "on", "LINK_BY_EMAIL": "on", "GROUPS_CLAIM": "groups"}
    result = issuer(**named, ADMIN_GROUP="operators", ROLES="leads=admin, cn=staff=member")

    expected: dict[str, Any] = {"client_secret": "from a file", "name": "Example"}
    expected |= {"scopes": ("openid", "email", "groups"), "organization": "Example"}
    expected |= {"makes_accounts": True, "links_by_email": True, "groups_claim": "groups"}
    expected |= {"admin_group": "operators", "roles": {"leads": "admin", "cn=staff": "member"}}
    assert result == Issuer(url=URL, client_id="vinery", **expected)
    assert "from a file" not in repr(result)


@table(
    "wrong, message",
    [
        *(({"ISSUER": f"{of}id.example"}, "Start it with https://") for of in ("", "http://")),
        ({"CLIENT_ID": ""}, "set VINERY_OIDC_CLIENT_ID"),
        ({"CLIENT_SECRET": ""}, "VINERY_OIDC_CLIENT_SECRET_FILE"),
        ({"ROLES": "leads=king", "GROUPS_CLAIM": "groups"}, "'leads=king' is not a group"),
        ({"ROLES": "leads", "GROUPS_CLAIM": "groups"}, "'leads' is not a group"),
        ({"ROLES": "leads=admin"}, "need VINERY_OIDC_GROUPS_CLAIM"),
        ({"ADMIN_GROUP": "operators"}, "need VINERY_OIDC_GROUPS_CLAIM"),
        ({"SIGN_UP": "maybe"}, "VINERY_OIDC_SIGN_UP='maybe' is not a switch"),
    ],
)
def test_an_invalid_setting_is_reported(wrong: dict[str, str], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        issuer(**wrong)


def test_a_mail_server_is_read_from_its_url(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("HOST", "PORT", "HOST_USER", "HOST_PASSWORD", "USE_SSL", "USE_TLS")
    assert mail_server_from_env() == {}
    for url, *server in (
        ("smtp://mail.example", "mail.example", 587, "", "", False, True),
        ("smtps://u:p%40s@mail.example", "mail.example", 465, "u", "p@s", True, False),
        ("smtp+plain://localhost:1025", "localhost", 1025, "", "", False, False),
    ):
        monkeypatch.setenv("VINERY_EMAIL_URL", url)
        expected = {f"EMAIL_{name}": value for name, value in zip(names, server, strict=True)}
        assert mail_server_from_env() == expected, url
    for wrong in ("http://mail", "smtp://:25", "smtp://mail:many"):
        monkeypatch.setenv("VINERY_EMAIL_URL", wrong)
        with pytest.raises(SettingError, match="VINERY_EMAIL_URL"):
            mail_server_from_env()


_TRY = """
import sys
from vinery_platform.cli.shape import start_django
start_django()
from django.conf import settings
settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]  # which takes no time
from django.test import Client
for _ in range(3):
    page = Client().post(
        "/accounts/login/", {"login": "admin", "password": "wrong"}, headers={"host": "localhost"}
    )
    print("blocked" if "Too many failed" in page.content.decode() else "wrong")
"""


@pytest.mark.stores
def test_wrong_passwords_of_a_process_block_others(installation: dict[str, str]) -> None:
    results = [scripts.run_python("-c", _TRY, environment=installation) for _ in range(2)]

    assert results[0].stdout.split() == ["wrong", "wrong", "wrong"]
    assert results[1].stdout.split() == ["wrong", "wrong", "blocked"]
