"""Settings of sign-in and e-mail in different environments."""

from pathlib import Path

import pytest

from tests.tables import table
from vinery.config.env import SettingError
from vinery.settings.servers import issuer_from_env, mail_server_from_env
from vinery_accounts.signin.issuer import Issuer

URL = "https://id.example/realms/main"


def issuer(**more: str) -> Issuer | None:
    """The issuer that these variables configure."""
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
    assert issuer() == Issuer(
        url=URL,
        client_id="vinery",
        client_secret="secret",
        name="single sign-on",
        scopes=("openid", "profile", "email"),
        makes_accounts=False,
        links_by_email=False,
    )


def test_every_setting_of_an_issuer_can_be_set(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("from a file\n")

    result = issuer(
        CLIENT_SECRET="",
        CLIENT_SECRET_FILE=str(tmp_path / "secret"),
        NAME="Example",
        SCOPES="email, groups",
        SIGN_UP="on",
        LINK_BY_EMAIL="on",
        ORGANIZATION="Example",
        GROUPS_CLAIM="groups",
        ADMIN_GROUP="operators",
        ROLES="leads=admin, cn=staff=member",
    )

    assert result == Issuer(
        url=URL,
        client_id="vinery",
        client_secret="from a file",
        name="Example",
        scopes=("openid", "email", "groups"),
        makes_accounts=True,
        links_by_email=True,
        organization="Example",
        groups_claim="groups",
        admin_group="operators",
        roles={"leads": "admin", "cn=staff": "member"},
    )
    assert "from a file" not in repr(result)


@table(
    "wrong, message",
    [
        ({"ISSUER": "http://id.example"}, "Start it with https://"),
        ({"ISSUER": "id.example"}, "Start it with https://"),
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


@pytest.mark.parametrize(
    ("url", "server"),
    [
        ("smtp://mail.example", ("mail.example", 587, "", "", False, True)),
        ("smtps://u:p%40s@mail.example", ("mail.example", 465, "u", "p@s", True, False)),
        ("smtp+plain://localhost:1025", ("localhost", 1025, "", "", False, False)),
    ],
)
def test_a_mail_server_is_read_from_its_url(
    url: str, server: tuple[object, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("HOST", "PORT", "HOST_USER", "HOST_PASSWORD", "USE_SSL", "USE_TLS")
    assert mail_server_from_env() == {}
    monkeypatch.setenv("VINERY_EMAIL_URL", url)
    expected = {f"EMAIL_{name}": value for name, value in zip(names, server, strict=True)}
    assert mail_server_from_env() == expected
    for wrong in ("http://mail", "smtp://:25", "smtp://mail:many"):
        monkeypatch.setenv("VINERY_EMAIL_URL", wrong)
        with pytest.raises(SettingError, match="VINERY_EMAIL_URL"):
            mail_server_from_env()
