"""Media rules in the management API: administrators allow, owners narrow, members see."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from api_client import Api, Tenant, with_key
from django.utils import timezone

from vinery_accounts.keys.lifecycle import create_key
from vinery_accounts.models import AuditEntry, Role, Scope, User
from vinery_accounts.services import changes
from vinery_serving.allowlist import resource
from vinery_serving.allowlist.denials import Count, Refused, store_denials
from vinery_serving.allowlist.models import MediaDenial, MediaRule
from vinery_serving.media.denials import Denial, DenialReason


def refused(api: Api, path: str, body: object, method: str = "POST") -> tuple[str, str]:
    """Return the parameter and the message of a 400."""
    response = api.request(method, path, body)
    assert response.status_code == 400, response.content
    error = response.json()["error"]
    return error["param"], error["message"]


def test_an_administrator_allows_a_host_and_the_log_has_each_change(root: Api) -> None:
    rule = root.post("media-rules/", {"host": "Images.Example.org", "note": "our pictures"})

    assert (rule["host"], rule["scope"], rule["schemes"]) == (
        "images.example.org",
        "platform",
        ["https"],
    )
    path = f"media-rules/{rule['id']}/"
    assert root.patch(path, {"ports": [8443, 443, 443]})["ports"] == [443, 8443]
    root.delete(path)
    entries = AuditEntry.objects.filter(target_kind="media_rule").order_by("number")
    assert [entry.action.partition(".")[2] for entry in entries] == ["create", "update", "delete"]


def test_a_host_with_other_letters_is_stored_as_punycode(root: Api) -> None:
    assert root.post("media-rules/", {"host": "*.BÜCHER.example"})["host"] == (
        "*.xn--bcher-kva.example"
    )


@pytest.mark.parametrize(
    ("field", "value", "text"),
    [
        ("host", "*", "would allow every host"),
        ("host", "*.com", "allows too much"),
        ("host", "https://images.example.org/a.png", "Write the name alone"),
        ("host", "images.example.org:8443", "Write the name alone"),
        ("host", "me@images.example.org", "Write the name alone"),
        ("host", "a.*.example.org", "Only the beginning"),
        ("host", "0x7f.1", "neither a name nor an address"),
        ("host", "2130706433", "neither a name nor an address"),
        ("host", "*.10.0.0.1", "Write the address alone"),
        ("host", "xn--a", "no valid punycode"),
        ("host", "a b.example", "no name of a host"),
        ("ports", [0], "1"),
        ("ports", [65536], "65535"),
        ("networks", ["10.0.0.1/8"], "no network"),
        ("networks", ["everything"], "no network"),
        ("schemes", ["ftp"], "ftp"),
        ("content_types", ["text/html"], "image/png"),
        ("max_redirects", 11, "10"),
        ("timeout_s", 0, "0.1"),
        ("max_bytes", 0, "1"),
    ],
)
def test_a_wrong_value_is_refused_with_what_to_write(
    root: Api, field: str, value: object, text: str
) -> None:
    param, message = refused(root, "media-rules/", {"host": "ok.example.org", field: value})

    assert param.startswith(field)
    assert text in message


def test_a_host_has_one_rule_in_each_scope(root: Api, ours: Tenant) -> None:
    for scope in ({}, {"organization": ours.organization.pk}, {"project": ours.one.pk}):
        root.post("media-rules/", {"host": "a.example.org", **scope})
        _, message = refused(root, "media-rules/", {"host": "A.example.org", **scope})
        assert "already" in message


def test_a_changed_host_may_not_be_that_of_another_rule(root: Api) -> None:
    root.post("media-rules/", {"host": "a.example.org"})
    other = root.post("media-rules/", {"host": "b.example.org"})

    _, message = refused(root, f"media-rules/{other['id']}/", {"host": "A.example.org"}, "PATCH")

    assert "already" in message


def test_a_project_that_is_named_alone_belongs_to_its_organisation(
    root: Api, ours: Tenant, theirs: Tenant
) -> None:
    rule = root.post("media-rules/", {"host": "a.example.org", "project": ours.one.pk})

    assert (rule["scope"], rule["organization"]) == ("project", ours.organization.pk)
    both = {"project": ours.one.pk, "organization": theirs.organization.pk}
    assert refused(root, "media-rules/", {"host": "b.example.org", **both})[0] == "project"


def test_owners_narrow_their_organisation_and_its_projects(owner: Api, ours: Tenant) -> None:
    own = {"organization": ours.organization.pk}
    rule = owner.post("media-rules/", {"host": "a.example.org", **own})
    owner.post("media-rules/", {"host": "a.example.org", "project": ours.two.pk})
    owner.post("media-folders/", {"folder": "/srv/pictures", **own})
    owner.post("media-limits/", {"max_media": 2, **own})

    assert owner.patch(f"media-rules/{rule['id']}/", {"is_active": False})["is_active"] is False
    owner.delete(f"media-rules/{rule['id']}/")


def test_owners_change_no_rule_of_the_platform(root: Api, owner: Api) -> None:
    rule = root.post("media-rules/", {"host": "a.example.org"})

    assert owner.error("POST", "media-rules/", {"host": "b.example.org"})[0] == 403
    assert owner.error("PATCH", f"media-rules/{rule['id']}/", {"is_active": False})[0] == 403
    assert owner.error("DELETE", f"media-rules/{rule['id']}/")[0] == 403
    assert owner.error("POST", "media-folders/", {"folder": "/"})[0] == 403
    assert owner.error("POST", "media-limits/", {"max_media": 9})[0] == 403


def test_only_rules_of_the_platform_have_private_networks_which_administrators_see(
    root: Api, owner: Api, ours: Tenant
) -> None:
    networks = {"networks": ["10.1.0.0/16"]}
    rule = root.post("media-rules/", {"host": "intranet", **networks})
    own = {"host": "intranet", "organization": ours.organization.pk}

    assert refused(owner, "media-rules/", {**own, **networks})[0] == "networks"
    assert refused(root, "media-rules/", {**own, **networks})[0] == "networks"
    assert rule["networks"] == ["10.1.0.0/16"]
    assert "networks" not in owner.get(f"media-rules/{rule['id']}/")


@pytest.mark.parametrize("role", [Role.ADMIN, Role.MEMBER, Role.VIEWER])
def test_members_see_the_rules_that_hold_for_them_and_change_none(
    root: Api, as_role: Callable[..., Api], ours: Tenant, theirs: Tenant, role: Role
) -> None:
    member, own = as_role(role), {"organization": ours.organization.pk}
    root.post("media-rules/", {"host": "a.example.org"})
    rule = root.post("media-rules/", {"host": "b.example.org", **own})
    root.post("media-rules/", {"host": "c.example.org", "project": ours.one.pk})
    root.post("media-rules/", {"host": "d.example.org", "organization": theirs.organization.pk})

    seen = member.column("media-rules/", "host")
    assert seen == ["a.example.org", "b.example.org", "c.example.org"]
    assert member.error("DELETE", f"media-rules/{rule['id']}/")[0] == 403
    assert member.error("POST", "media-rules/", {"host": "e.example.org", **own})[0] == 403


def test_a_member_of_one_project_sees_no_rule_of_another_one(
    root: Api, as_role: Callable[..., Api], ours: Tenant
) -> None:
    member = as_role(Role.MEMBER, ours.one)
    root.post("media-rules/", {"host": "a.example.org", "organization": ours.organization.pk})
    root.post("media-rules/", {"host": "b.example.org", "project": ours.one.pk})
    root.post("media-rules/", {"host": "c.example.org", "project": ours.two.pk})

    assert member.column("media-rules/", "host") == ["a.example.org", "b.example.org"]
    assert member.column("media-rules/", "host", scope="project") == ["b.example.org"]


def test_a_manage_key_of_an_owner_narrows_its_project_alone(
    ours: Tenant, make_user: Callable[..., User]
) -> None:
    user = make_user("olga", Role.OWNER)
    api = with_key(create_key(owner=user, project=ours.one, name="k", scopes=[Scope.MANAGE]))

    api.post("media-rules/", {"host": "a.example.org", "project": ours.one.pk})
    organization = {"organization": ours.organization.pk}
    assert api.error("POST", "media-rules/", {"host": "a.example.org", **organization})[0] == 403


def test_an_admin_key_allows_a_host(ours: Tenant) -> None:
    root = User.objects.create_superuser("chief")
    api = with_key(create_key(owner=root, project=ours.one, name="k", scopes=[Scope.ADMIN]))

    assert api.post("media-rules/", {"host": "a.example.org"})["scope"] == "platform"


def test_a_folder_of_the_platform_must_exist_and_have_no_links(root: Api, tmp_path: Path) -> None:
    real = tmp_path.resolve() / "pictures"
    real.mkdir()
    (tmp_path / "link").symlink_to(real)

    assert root.post("media-folders/", {"folder": f"{real}/"})["folder"] == str(real)
    for folder, text in {
        "pictures": "not an absolute path",
        "/": "every file",
        f"{real}/..": "Leave out ..",
        f"{real}/none": "There is no folder",
        f"{tmp_path}/link": f"Write the folder itself: {real}",
    }.items():
        param, message = refused(root, "media-folders/", {"folder": folder})
        assert (param, text in message) == ("folder", True), message


def test_an_owner_does_not_learn_which_folders_the_server_has(
    owner: Api, ours: Tenant, tmp_path: Path
) -> None:
    own = {"organization": ours.organization.pk}

    for folder in (str(tmp_path), f"{tmp_path}/none"):
        assert owner.post("media-folders/", {"folder": folder, **own})["folder"] == folder


def test_an_organisation_has_a_bounded_number_of_rules(
    owner: Api, root: Api, ours: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "MAX_ROWS", 1)
    owner.post("media-rules/", {"host": "a.example.org", "organization": ours.organization.pk})

    _, message = refused(owner, "media-rules/", {"host": "b.example.org", "project": ours.one.pk})

    assert "Remove some first" in message
    root.post("media-rules/", {"host": "b.example.org"})


def test_removing_a_project_removes_its_rules_with_entries_in_the_log(
    root: Api, ours: Tenant
) -> None:
    root.post("media-rules/", {"host": "a.example.org", "project": ours.one.pk})
    root.post("media-rules/", {"host": "a.example.org", "organization": ours.organization.pk})

    changes.remove(ours.one)

    assert [rule.scope for rule in MediaRule.objects.all()] == ["organization"]
    removed = AuditEntry.objects.get(action="media_rule.delete")
    assert (removed.target, removed.organization_id) == ("a.example.org", ours.organization.pk)


def test_refused_media_are_listed_for_those_who_see_their_project(
    root: Api, as_role: Callable[..., Api], ours: Tenant, theirs: Tenant
) -> None:
    now = timezone.now()
    for tenant in (ours, theirs):
        host = f"{tenant.organization.name}.example"
        denial = Denial(DenialReason.NO_RULE, "platform", scheme="https", host=host, port=8443)
        whose = Refused(tenant.organization.pk, tenant.one.pk, denial)
        store_denials({whose: Count(3, now, now, "", None)})

    (seen,) = as_role(Role.VIEWER).get("media-denials/")["data"]

    assert (seen["what"], seen["num"]) == ("https://ours.example:8443", 3)
    assert (seen["project_name"], seen["reason"]) == ("ours one", "no_rule")
    assert len(root.get("media-denials/")["data"]) == 2
    assert root.column("media-denials/", "host", host="theirs.example") == ["theirs.example"]
    assert MediaDenial.objects.count() == 2


def test_the_address_of_a_refused_host_is_for_administrators_alone(
    root: Api, as_role: Callable[..., Api], ours: Tenant
) -> None:
    now = timezone.now()
    denial = Denial(DenialReason.ADDRESS, "platform", scheme="https", host="a.example", port=443)
    whose = Refused(ours.organization.pk, ours.one.pk, denial)
    store_denials({whose: Count(1, now, now, "10.1.2.3", None)})

    owner = as_role(Role.OWNER)
    (seen,) = owner.get("media-denials/")["data"]
    assert (seen["reason"], seen["detail"]) == ("address", "")
    assert owner.get(f"media-denials/{seen['id']}/")["detail"] == ""
    assert root.column("media-denials/", "detail") == ["10.1.2.3"]


def test_the_document_of_the_api_has_the_media_rules(root: Api) -> None:
    document: Any = root.request("GET", "schema/?format=json").json()

    for name in ("media-rules", "media-folders", "media-limits", "media-denials"):
        assert f"/api/{name}/" in document["paths"] or f"/api/{name}" in document["paths"]
    rule = document["components"]["schemas"]["MediaRule"]["properties"]
    assert rule["host"]["description"]
