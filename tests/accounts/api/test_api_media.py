"""Media rules in the management API: administrators allow, owners narrow, members see."""

from pathlib import Path

import pytest
from api_client import Api, Tenant
from row_builders import logged, stored_denial

from tests.tables import table
from vinery_accounts.models import Role
from vinery_serving.media.rules import DenialReason
from vinery_serving.media.tables import resource
from vinery_serving.media.tables.models import MediaDenial

RULES, FOLDERS = "media-rules/", "media-folders/"
LIMITS, DENIALS = "media-limits/", "media-denials/"
A, B = "a.example.org", "b.example.org"


def refused(api: Api, path: str, body: object, method: str = "POST") -> tuple[str, str]:
    """Return the parameter and the message of a 400."""
    response = api.request(method, path, body)
    assert response.status_code == 400, response.content
    error = response.json()["error"]
    return error["param"], error["message"]


def of(tenant: Tenant) -> dict[str, int]:
    return {"organization": tenant.organization.pk}


def test_a_host_has_one_rule_in_each_scope(root: Api, ours: Tenant, theirs: Tenant) -> None:
    rule = root.post(RULES, {"host": "Images.Example.org", "note": "our pictures"})
    assert (rule["host"], rule["scope"]) == ("images.example.org", "platform")
    assert rule["schemes"] == ["https"]
    path = f"{RULES}{rule['id']}/"
    assert root.patch(path, {"ports": [8443, 443, 443]})["ports"] == [443, 8443]
    root.delete(path)
    actions = ["media_rule.create", "media_rule.update", "media_rule.delete"]
    assert logged(target_kind="media_rule") == actions
    punycode = root.post(RULES, {"host": "*.BÜCHER.example"})["host"]
    assert punycode == "*.xn--bcher-kva.example"

    for scope in ({}, of(ours), {"project": ours.one.pk}):
        root.post(RULES, {"host": A, **scope})
        assert "already" in refused(root, RULES, {"host": A.upper(), **scope})[1]
    other = root.post(RULES, {"host": B})

    assert "already" in refused(root, f"{RULES}{other['id']}/", {"host": A.upper()}, "PATCH")[1]

    rule = root.post(RULES, {"host": "c.example.org", "project": ours.one.pk})
    assert (rule["scope"], rule["organization"]) == ("project", ours.organization.pk)
    assert refused(root, RULES, {"host": B, "project": ours.one.pk, **of(theirs)})[0] == "project"


@table(
    "field, value, text",
    [
        ("host", "*", "would allow every host"),
        ("ports", [0], "1"),
        ("networks", ["10.0.0.1/8"], "no network"),
        ("schemes", ["ftp"], "ftp"),
        ("content_types", ["text/html"], "image/png"),
        ("timeout_s", 0, "0.1"),
    ],
)
def test_a_wrong_value_is_refused(root: Api, field: str, value: object, text: str) -> None:
    param, message = refused(root, RULES, {"host": "ok.example.org", field: value})

    assert param.startswith(field)
    assert text in message


def test_owners_narrow_and_administrators_allow(root: Api, owner: Api, ours: Tenant) -> None:
    rule = owner.post(RULES, {"host": A, **of(ours)})
    owner.post(RULES, {"host": A, "project": ours.two.pk})
    owner.post(FOLDERS, {"folder": "/srv/pictures", **of(ours)})
    owner.post(LIMITS, {"max_media": 2, **of(ours)})
    path = f"{RULES}{rule['id']}/"
    assert owner.patch(path, {"is_active": False})["is_active"] is False
    owner.delete(path)

    path = f"{RULES}{root.post(RULES, {'host': A})['id']}/"
    for method, where, body in (
        ("POST", RULES, {"host": B}),
        ("PATCH", path, {"is_active": False}),
        ("DELETE", path, None),
        ("POST", FOLDERS, {"folder": "/"}),
        ("POST", LIMITS, {"max_media": 9}),
    ):
        assert owner.error(method, where, body)[0] == 403

    networks = {"networks": ["10.1.0.0/16"]}
    rule = root.post(RULES, {"host": "intranet", **networks})

    for api in (owner, root):
        assert refused(api, RULES, {"host": "intranet", **of(ours), **networks})[0] == "networks"
    assert rule["networks"] == ["10.1.0.0/16"]
    assert "networks" not in owner.get(f"{RULES}{rule['id']}/")


def test_a_platform_folder_must_exist(root: Api, owner: Api, ours: Tenant, tmp_path: Path) -> None:
    real = tmp_path.resolve() / "pictures"
    real.mkdir()
    (tmp_path / "link").symlink_to(real)

    assert root.post(FOLDERS, {"folder": f"{real}/"})["folder"] == str(real)
    for folder, text in {
        "pictures": "not an absolute path",
        "/": "every file",
        f"{real}/..": "Leave out ..",
        f"{real}/none": "There is no folder",
        f"{tmp_path}/link": f"Write the folder itself: {real}",
    }.items():
        param, message = refused(root, FOLDERS, {"folder": folder})
        assert (param, text in message) == ("folder", True), message
    # An owner does not learn which folders the server has.
    for folder in (str(tmp_path), f"{tmp_path}/none"):
        assert owner.post(FOLDERS, {"folder": folder, **of(ours)})["folder"] == folder


def test_an_organisation_has_a_bounded_number_of_rules(
    owner: Api, root: Api, ours: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "MAX_ROWS", 1)
    owner.post(RULES, {"host": A, **of(ours)})

    message = refused(owner, RULES, {"host": B, "project": ours.one.pk})[1]
    assert "Remove some first" in message
    root.post(RULES, {"host": B})


def test_refused_media_are_listed_in_their_project(root: Api, ours: Tenant, theirs: Tenant) -> None:
    for tenant in (ours, theirs):
        stored_denial(tenant.one, host=f"{tenant.organization.name}.example", port=8443)

    (seen,) = ours.as_role(Role.VIEWER).get(DENIALS)["data"]

    assert (seen["what"], seen["num"]) == ("https://ours.example:8443", 3)
    assert (seen["project_name"], seen["reason"]) == ("ours one", "no_rule")
    assert len(root.get(DENIALS)["data"]) == 2
    assert root.column(DENIALS, "host", host="theirs.example") == ["theirs.example"]
    assert MediaDenial.objects.count() == 2


def test_addresses_of_hosts_are_for_administrators(root: Api, owner: Api, ours: Tenant) -> None:
    stored_denial(ours.one, reason=DenialReason.ADDRESS, detail="10.1.2.3")

    (seen,) = owner.get(DENIALS)["data"]
    assert (seen["reason"], seen["detail"]) == ("address", "")
    assert owner.get(f"{DENIALS}{seen['id']}/")["detail"] == ""
    assert root.column(DENIALS, "detail") == ["10.1.2.3"]
