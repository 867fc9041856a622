"""The OpenID Connect issuer and the mail server, from environment variables."""

from __future__ import annotations

from typing import Final
from urllib.parse import unquote, urlsplit

from accounts.signin.issuer import Issuer
from vinery.config import env
from vinery.config.env import SettingError

_ROLES: Final = ("owner", "admin", "member", "viewer")
_SCOPES: Final = ("openid", "profile", "email")


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
        makes_accounts=env.on_off("VINERY_OIDC_SIGN_UP", default=False),
        links_by_email=env.on_off("VINERY_OIDC_LINK_BY_EMAIL", default=False),
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
    address = env.secret_url("VINERY_EMAIL_URL", schemes=tuple(_PORTS))
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
