"""The database, the OpenID Connect issuer and the mail server, from environment variables."""

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import dj_database_url

from vinery_accounts.signin.issuer import Issuer
from vinery_platform.config import env
from vinery_platform.config.env import SettingError
from vinery_platform.config.home import Home

_ROLES: Final = ("owner", "admin", "member", "viewer")
_SCOPES: Final = ("openid", "profile", "email")
_SQLITE_MAX_AGE_S: Final = 60


def database(home: Home) -> dict[str, Any]:
    """Django's settings of the database in DATABASE_URL, or of SQLite in the home folder.

    Raises `SettingError` for other schemes.
    """
    address = env.url("DATABASE_URL")
    if not address:
        return _sqlite({"ENGINE": "django.db.backends.sqlite3"}, str(home.path / "vinery.sqlite3"))
    parsed = dict(dj_database_url.parse(address))
    if address.startswith("sqlite"):
        return _sqlite(parsed, str(parsed["NAME"]))
    return _postgresql(parsed)


def ray_address(database: Mapping[str, Any]) -> str:
    """The host:port of Ray's head with VINERY_PLACEMENT=ray, else empty.

    Raises `SettingError` without RAY_ADDRESS, and for a database that has one host.
    """
    if env.choice("VINERY_PLACEMENT") == "local":
        return ""
    address = env.text("RAY_ADDRESS")
    host, _, port = address.rpartition(":")
    if not host or "/" in host or not port.isdecimal():
        raise SettingError(
            "VINERY_PLACEMENT=ray needs the host:port of Ray's head in RAY_ADDRESS, such as "
            f"10.0.0.5:6379, and RAY_ADDRESS is {address or 'not set'}."
        )
    if database["ENGINE"].endswith("sqlite3"):
        raise SettingError("VINERY_PLACEMENT=ray needs PostgreSQL: set DATABASE_URL.")
    return address


def _sqlite(parsed: dict[str, Any], name: str) -> dict[str, Any]:
    """SQLite with options for a server.

    IMMEDIATE: a deferred transaction that reads first and then writes fails at once if another
    transaction writes; an immediate one waits. WAL: readers do not wait for writers. NORMAL: a
    power failure may lose the last commits, a crash of a process does not. A thread keeps its
    connection: to open one takes longer than the queries that look for changes.
    """
    options = {
        "transaction_mode": "IMMEDIATE",
        "timeout": 20,
        "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
    }
    # Tests use a file too: threads that share Django's in-memory database get "table is locked"
    # at once, but wait for a file.
    own = {"NAME": name, "OPTIONS": options, "CONN_MAX_AGE": _SQLITE_MAX_AGE_S}
    return parsed | own | {"TEST": {"NAME": f"{name}.test"}}


def _postgresql(parsed: dict[str, Any]) -> dict[str, Any]:
    """PostgreSQL with a connection pool for each process.

    Under ASGI a connection that a thread keeps is idle after its request. With a pool, requests
    that wait for tokens hold no connection.

    `tcp_user_timeout` detects a dead host in seconds; TCP's default is a quarter of an hour. The
    URL may override both options of libpq.
    """
    options = {"connect_timeout": 5, "tcp_user_timeout": 10_000, **parsed.get("OPTIONS", {})}
    # The pool retries after growing delays, up to minutes. With this limit it gives up soon, and
    # tries again at the next request.
    options["pool"] = {"min_size": 1, "max_size": 10, "timeout": 5, "reconnect_timeout": 3}
    return parsed | {"OPTIONS": options, "CONN_MAX_AGE": 0}


def issuer_from_env() -> Issuer | None:
    """The OpenID Connect issuer, or None. Raises `SettingError`."""
    url = env.text("VINERY_OIDC_ISSUER")
    if not url:
        return None
    parts = urlsplit(url)
    is_local = parts.hostname in ("127.0.0.1", "localhost", "::1")
    # The client's secret and users' tokens are sent there.
    if not parts.hostname or not (parts.scheme == "https" or (parts.scheme == "http" and is_local)):
        raise SettingError(
            "VINERY_OIDC_ISSUER is not a URL that can be used here. Start it with https://"
        )
    client_id = env.text("VINERY_OIDC_CLIENT_ID")
    client_secret = env.secret("VINERY_OIDC_CLIENT_SECRET")
    if not client_id or not client_secret:
        raise SettingError(
            "VINERY_OIDC_ISSUER needs a client: set VINERY_OIDC_CLIENT_ID and "
            "VINERY_OIDC_CLIENT_SECRET (or VINERY_OIDC_CLIENT_SECRET_FILE)."
        )
    roles = _roles()
    scopes = tuple(env.words("VINERY_OIDC_SCOPES")) or _SCOPES
    groups_claim = env.text("VINERY_OIDC_GROUPS_CLAIM")
    admin_group = env.text("VINERY_OIDC_ADMIN_GROUP")
    if (roles or admin_group) and not groups_claim:
        raise SettingError(
            "VINERY_OIDC_ADMIN_GROUP and VINERY_OIDC_ROLES need VINERY_OIDC_GROUPS_CLAIM: set it "
            "to the claim that lists a user's groups, such as groups."
        )
    return Issuer(
        url=url,
        client_id=client_id,
        client_secret=client_secret,
        name=env.text("VINERY_OIDC_NAME", "single sign-on"),
        scopes=scopes if "openid" in scopes else ("openid", *scopes),
        makes_accounts=env.on_off("VINERY_OIDC_SIGN_UP"),
        links_by_email=env.on_off("VINERY_OIDC_LINK_BY_EMAIL"),
        organization=env.text("VINERY_OIDC_ORGANIZATION"),
        groups_claim=groups_claim,
        admin_group=admin_group,
        roles=roles,
    )


def _roles() -> dict[str, str]:
    """`group=role` pairs. Raises `SettingError`."""
    roles = {}
    for pair in env.words("VINERY_OIDC_ROLES"):
        group, _, role = pair.rpartition("=")
        if not group or role not in _ROLES:
            raise SettingError(
                f"VINERY_OIDC_ROLES: {pair!r} is not a group and its role. Write group=role, "
                f"with {', '.join(_ROLES)} as roles, and commas between pairs."
            )
        roles[group] = role
    return roles


_PORTS: Final = {"smtps": 465, "smtp": 587, "smtp+plain": 25}


def mail_server_from_env() -> dict[str, str | int | bool]:
    """Django's settings of the server in VINERY_EMAIL_URL, or none. Raises `SettingError`.

    `smtp://` uses STARTTLS, `smtps://` TLS, and `smtp+plain://` neither, for a local relay.
    """
    address = env.url("VINERY_EMAIL_URL")
    if not address:
        return {}
    parts = urlsplit(address)
    try:
        port = parts.port or _PORTS[parts.scheme]
    except ValueError:
        raise SettingError("VINERY_EMAIL_URL has a port that is not a number.") from None
    if not parts.hostname:
        raise SettingError("VINERY_EMAIL_URL has no host. Write smtp://user:password@host")
    return {
        "EMAIL_HOST": parts.hostname,
        "EMAIL_PORT": port,
        "EMAIL_HOST_USER": unquote(parts.username or ""),
        "EMAIL_HOST_PASSWORD": unquote(parts.password or ""),
        "EMAIL_USE_SSL": parts.scheme == "smtps",  # TLS from the first byte
        "EMAIL_USE_TLS": parts.scheme == "smtp",  # TLS after STARTTLS
    }
