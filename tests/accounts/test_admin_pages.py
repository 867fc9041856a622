"""Keys, organisations, limits, users and usage records in Django's admin.

They are limited to the user's scope, validated and audited.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import Permission
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from pages import text_of
from row_builders import stored_refusal
from usage_builders import admission, settlement

from vinery_accounts.captures.store import CapturedRequest, store_captured
from vinery_accounts.keys.lifecycle import NewKey, find_key
from vinery_accounts.models import (
    ApiKey,
    AuditEntry,
    Capture,
    KeyState,
    Limit,
    Membership,
    Organization,
    Project,
    RefusedRequest,
    Role,
    User,
)
from vinery_accounts.services import audit, changes
from vinery_accounts.services.changes import first_project, set_role
from vinery_accounts.usage.store import store_settlements

KEYS = "admin:accounts_apikey_changelist"
ADD_KEY = "admin:accounts_apikey_add"
NO_ROLES = {f"memberships-{name}_FORMS": 0 for name in ("TOTAL", "INITIAL", "MIN_NUM", "MAX_NUM")}


def page_of(table: str, page: str, *arguments: object) -> str:
    return reverse(f"admin:accounts_{table}_{page}", args=arguments)


def errors_of(response: Any) -> set[str]:
    return set(response.context["adminform"].form.errors)


def act_on(client: Client, action: str, *keys: ApiKey) -> str:
    """Run an action on the chosen rows, and return the page that follows."""
    body = {"action": action, "_selected_action": [key.pk for key in keys]}
    return text_of(client.post(reverse(KEYS), body, follow=True))


def actions_by(actor: str) -> list[str]:
    entries = AuditEntry.objects.filter(actor=actor).order_by("number")
    return [entry.action for entry in entries]


# -- Keys


def test_selected_keys_are_paused_resumed_and_rotated(
    client: Client, staff: User, new_key: Callable[..., NewKey]
) -> None:
    first, second = new_key("first").key, new_key("second").key

    assert "2 of the selected keys paused" in act_on(client, "pause", first, second)
    assert "1 of the selected keys resumed" in act_on(client, "resume", first)
    page = act_on(client, "rotate", first)

    (secret,) = re.findall(r"<code>(vny_live_\w+)</code>", page)
    first.refresh_from_db()
    second.refresh_from_db()
    assert find_key(secret) == first.replaced_by
    assert second.state_at(timezone.now()) is KeyState.PAUSED
    assert "rotated already" in act_on(client, "rotate", first)
    assert actions_by("staff") == [
        *("key.pause", "key.pause", "key.resume", "key.create", "key.rotate"),
    ]
    assert audit.verify().broken is None


def test_staff_may_not_rotate_a_managing_key_of_a_user_with_more_rights(
    client: Client, staff: User, root: User, new_key: Callable[..., NewKey]
) -> None:
    client.force_login(staff)
    key = new_key(owner=root, scopes=["manage"]).key

    page = act_on(client, "rotate", key)

    assert "may do more than you" in page
    assert "<code>vny" not in page
    assert ApiKey.objects.count() == 1


@pytest.mark.parametrize("wrong", [{"scopes": []}, {"allowed_networks": "the office"}])
def test_an_invalid_key_is_reported_at_its_field(
    client: Client, root: User, wrong: dict[str, Any]
) -> None:
    body = {"name": "x", "owner": root.pk, "project": first_project().pk, "scopes": ["usage"]}

    response = client.post(reverse(ADD_KEY), body | wrong)

    assert errors_of(response) == set(wrong)
    assert not ApiKey.objects.exists()


def test_staff_see_the_rows_of_their_role(
    client: Client, staff: User, new_key: Callable[..., NewKey], alice: User
) -> None:
    acme = changes.add(Organization(name="acme"))
    project = changes.add(Project(organization=acme, name="search"))
    new_key("ours")
    elsewhere = new_key("elsewhere", project=project).key
    limit = changes.add(
        Limit(scope="project", scope_id=project.pk, metric="tokens", window="day", amount=1)
    )

    shown = client.get(reverse(KEYS)).context["cl"].result_list
    assert [key.name for key in shown] == ["ours"]
    for table, row in (("apikey", elsewhere), ("organization", acme), ("limit", limit)):
        # Django redirects to the start page if the row does not exist.
        assert client.get(page_of(table, "change", row.pk)).status_code == 302
    act_on(client, "revoke", elsewhere)
    assert ApiKey.objects.get(pk=elsewhere.pk).revoked_at is None
    choices = {"app_label": "accounts", "model_name": "apikey", "field_name": "project"}
    found = client.get(reverse("admin:autocomplete"), choices).json()
    assert [each["text"] for each in found["results"]] == ["default / default"]
    body = {"name": "x", "owner": alice.pk, "project": project.pk, "scopes": ["inference"]}
    assert errors_of(client.post(reverse(ADD_KEY), body)) == {"project"}
    assert ApiKey.objects.count() == 2


@pytest.mark.parametrize("table", ["apikey", "project", "membership"])
def test_filters_name_only_scopes_that_staff_may_see(
    client: Client, staff: User, root: User, table: str
) -> None:
    project = changes.add(Project(organization=first_project().organization, name="second"))
    changes.add(Project(organization=changes.add(Organization(name="acme")), name="secret"))
    column = "project" if table == "apikey" else "organization"

    def choices(reader: User) -> set[str]:
        client.force_login(reader)
        specs = client.get(page_of(table, "changelist")).context["cl"].filter_specs
        lookup = f"{column}__id__exact"
        found = [spec for spec in specs if getattr(spec, "lookup_kwarg", "") == lookup]
        return {name for spec in found for _, name in spec.lookup_choices}

    if column == "project":
        seen = {str(first_project()), str(project)}
        assert choices(staff) == seen
        assert choices(root) == {*seen, "acme / secret"}
    else:
        assert choices(staff) == set()  # there is no choice
        assert choices(root) == {"default", "acme"}


def test_staff_see_the_roles_of_their_own_organisations(
    client: Client, staff: User, root: User, alice: User
) -> None:
    set_role(alice, first_project().organization, Role.VIEWER)
    set_role(alice, changes.add(Organization(name="acme")), Role.OWNER)

    def shown(reader: User) -> list[str]:
        client.force_login(reader)
        response = client.get(page_of("user", "change", alice.pk))
        (roles,) = response.context["inline_admin_formsets"]
        return sorted(str(form.instance.organization) for form in roles.formset.forms)

    assert shown(staff) == ["default"]
    assert shown(root) == ["acme", "default"]


def test_usage_filters_name_only_models_that_staff_may_see(
    client: Client, staff: User, root: User
) -> None:
    ours = first_project().organization_id
    store_settlements(
        [
            settlement(admission=admission("ours", model="ours", organization_id=ours)),
            settlement(admission=admission("theirs", model="theirs", organization_id=4711)),
        ]
    )

    def models(reader: User) -> list[str]:
        client.force_login(reader)
        specs = client.get(page_of("usagerecord", "changelist")).context["cl"].filter_specs
        (found,) = [spec for spec in specs if spec.title == "model"]
        return [name for _, name in found.lookup_choices]

    assert models(staff) == ["ours"]
    assert models(root) == ["ours", "theirs"]


def test_staff_may_not_create_a_managing_key_of_a_user_with_more_rights(
    client: Client, staff: User, alice: User
) -> None:
    project = first_project()
    set_role(alice, project.organization, Role.OWNER)
    body = {"name": "x", "owner": alice.pk, "project": project.pk, "scopes": ["manage"]}
    assert "may do more than you" in text_of(client.post(reverse(ADD_KEY), body))
    assert not ApiKey.objects.exists()

    assert client.post(reverse(ADD_KEY), body | {"scopes": ["inference"]}).status_code == 302


@pytest.mark.parametrize("role", [None, Role.VIEWER])
def test_a_key_is_created_only_for_a_member(
    client: Client, root: User, alice: User, role: Role | None
) -> None:
    project = first_project()
    if role is not None:
        set_role(alice, project.organization, role)
    body = {"name": "x", "owner": alice.pk, "project": project.pk, "scopes": ["inference"]}

    response = client.post(reverse(ADD_KEY), body)

    assert errors_of(response) == {"owner"}
    assert f"alice is not a member of {project}." in text_of(response)
    assert not ApiKey.objects.exists()

    changes.set_role(alice, project.organization, Role.MEMBER)
    assert client.post(reverse(ADD_KEY), body).status_code == 302


def test_a_key_is_not_created_for_an_inactive_user(client: Client, root: User, alice: User) -> None:
    project = first_project()
    set_role(alice, project.organization, Role.MEMBER)
    User.objects.filter(pk=alice.pk).update(is_active=False)
    body = {"name": "x", "owner": alice.pk, "project": project.pk, "scopes": ["inference"]}

    assert errors_of(client.post(reverse(ADD_KEY), body)) == {"owner"}
    assert not ApiKey.objects.exists()


# -- Captures


def test_captures_are_listed_without_their_texts_and_cannot_be_changed(
    client: Client, staff: User, root: User
) -> None:
    project = changes.change(first_project(), capture_hours=1)
    now = timezone.now()
    one = CapturedRequest(
        request_id="req_1",
        project_id=project.pk,
        created_at=now,
        dialect="v1",
        endpoint="completions",
        model="tiny-chat",
        body=b"Zanzibarium",
        answer=b"",
        num_body_bytes=11,
        num_answer_bytes=0,
    )
    assert store_captured([one])
    row = Capture.objects.get()
    pages = [page_of("capture", "changelist"), page_of("capture", "change", row.pk)]

    for user in (root, staff):
        client.force_login(user)
        for page in pages:
            text = text_of(client.get(page))
            assert "req_1" in text
            assert "Zanzibarium" not in text
        assert client.post(page_of("capture", "delete", row.pk), {"post": "yes"}).status_code == 403
    Membership.objects.filter(user=staff).update(role=Role.VIEWER)
    assert "req_1" not in text_of(client.get(pages[0]))


# -- Scopes, roles and limits


def test_organisations_projects_roles_and_limits_are_created_changed_and_removed(
    client: Client, root: User, alice: User
) -> None:
    def send(page: str, body: dict[str, Any]) -> None:
        response = client.post(page, body)
        assert response.status_code == 302, errors_of(response)

    send(page_of("organization", "add"), {"name": "acme", "is_active": "on"})
    acme = Organization.objects.get(name="acme")
    body = {"name": "search", "organization": acme.pk, "is_active": "on", "capture_hours": 0}
    send(page_of("project", "add"), body)
    project = Project.objects.get(name="search")
    send(page_of("project", "change", project.pk), {"name": "search", "capture_hours": 2})
    role = {"user": alice.pk, "organization": acme.pk, "role": "owner"}
    send(page_of("membership", "add"), role)
    kind = {"scope": "project", "scope_id": project.pk, "metric": "tokens", "window": "day"}
    calendar = {"time_zone": "UTC", "week_start": "monday"}
    send(page_of("limit", "add"), {**kind, "amount": 9, **calendar})
    limit = Limit.objects.get()
    send(page_of("limit", "change", limit.pk), {**calendar, "amount": 8})
    assert "search" in text_of(client.get(page_of("limit", "changelist")))
    send(page_of("limit", "delete", limit.pk), {"post": "yes"})
    weight = {"model": "m", "uncached": 1, "cached": 0, "output": 2, "image": 1}
    send(page_of("modelweight", "add"), weight)

    assert not Project.objects.get(pk=project.pk).is_active
    assert actions_by("root") == [
        "organization.create",
        "project.create",
        "project.update",
        "membership.create",
        "limit.create",
        "limit.update",
        "limit.delete",
        "weight.create",
    ]


def test_removing_the_last_owner_is_refused_with_a_message(
    client: Client, root: User, alice: User
) -> None:
    role = changes.set_role(alice, changes.add(Organization(name="acme")), Role.OWNER)

    page = client.post(page_of("membership", "change", role.pk), {"role": "viewer"})
    assert "alice is the last owner" in text_of(page)
    client.post(page_of("membership", "delete", role.pk), {"post": "yes"})
    chosen = {"action": "delete_selected", "_selected_action": [role.pk], "post": "yes"}
    listed = client.post(page_of("membership", "changelist"), chosen, follow=True)
    assert "Alice is the last owner" in text_of(listed)
    assert Membership.objects.filter(pk=role.pk, role=Role.OWNER).exists()


@pytest.mark.parametrize(("typed", "stored"), [("", None), ("off", []), ("50, 80", [50, 80])])
def test_percentages_of_a_limit_have_the_form_of_the_console(
    client: Client, root: User, typed: str, stored: Any
) -> None:
    client.force_login(root)
    assert re.search(
        r'<input type="text" name="alert_at"(?! value)',
        text_of(client.get(page_of("limit", "add"))),
    )
    values = {"amount": 9, "time_zone": "UTC", "week_start": "monday", "alert_at": typed}
    kind = {"scope": "platform", "scope_id": 0, "metric": "tokens", "window": "day"}

    client.post(page_of("limit", "add"), {**kind, **values})

    limit = Limit.objects.get()
    assert limit.alert_at == stored
    form = client.get(page_of("limit", "change", limit.pk)).context["adminform"].form
    assert (form["alert_at"].value() or "") == typed
    num_before = AuditEntry.objects.count()
    client.post(page_of("limit", "change", limit.pk), values)
    assert AuditEntry.objects.count() == num_before
    wrong = client.post(page_of("limit", "change", limit.pk), {**values, "alert_at": "[50]"})
    assert errors_of(wrong) == {"alert_at"}


def test_a_limit_of_an_unknown_key_is_refused_with_a_message(client: Client, root: User) -> None:
    body = {"scope": "key", "scope_id": 99, "metric": "tokens", "window": "day", "amount": 1}
    page = client.post(page_of("limit", "add"), body | {"time_zone": "UTC", "week_start": "monday"})
    assert "There is no key 99" in text_of(page)
    assert not Limit.objects.exists()


# -- The usage records


@pytest.fixture
def refusal(db: None) -> RefusedRequest:
    return stored_refusal()


def test_usage_records_are_shown_and_cannot_be_changed(
    client: Client, root: User, alice: User, refusal: RefusedRequest
) -> None:
    changes.set_active(alice, False)
    rows = {"auditentry": AuditEntry.objects.get(), "refusedrequest": refusal}
    for table, row in rows.items():
        change = page_of(table, "change", row.pk)
        assert str(row) in text_of(client.get(change))
        assert "alice" in text_of(client.get(page_of(table, "changelist"), {"q": "alice"}))
        assert client.post(change, {}).status_code == 403
        assert client.get(page_of(table, "add")).status_code == 403
        gone = client.post(page_of(table, "delete", row.pk), {"post": "yes"})
        assert gone.status_code == 403
    found = client.get(page_of("auditentry", "changelist"), {"q": "deactivate"})
    assert len(found.context["cl"].result_list) == 1
    found = client.get(page_of("auditentry", "changelist"), {"q": "nothing of it"})
    assert len(found.context["cl"].result_list) == 0


# -- Users


def test_only_superusers_change_users(client: Client, staff: User, alice: User) -> None:
    set_role(alice, first_project().organization, Role.MEMBER)
    page = page_of("user", "change", alice.pk)

    assert "alice" in text_of(client.get(page))
    assert client.post(page, {"username": "alice", "is_superuser": "on"}).status_code == 403
    assert client.get(page_of("user", "add")).status_code == 403
    password = reverse("admin:auth_user_password_change", args=[alice.pk])
    assert client.get(password).status_code == 403


def test_changes_of_users_are_in_the_log(client: Client, root: User, alice: User) -> None:
    permission = Permission.objects.all()[0]
    ticked = {"is_staff": "on", "is_email_confirmed": "on"}
    body = {"username": "alice", "user_permissions": [permission.pk], **ticked}
    response = client.post(page_of("user", "change", alice.pk), body | NO_ROLES)
    assert response.status_code == 302
    page = reverse("admin:auth_user_password_change", args=[alice.pk])
    words = {"password1": "correct-horse-7", "password2": "correct-horse-7"}
    assert client.post(page, words | {"usable_password": "true"}).status_code == 302

    result = {entry.action: entry for entry in AuditEntry.objects.filter(target="alice")}
    assert set(result) == {"user.update", "user.permit", "user.password"}
    assert result["user.update"].after == {"is_active": False, "is_staff": True}
    assert result["user.permit"].after == {"user_permissions": [permission.pk]}
    assert result["user.password"].after is None


def test_roles_cannot_be_changed_on_the_page_of_their_user(
    client: Client, root: User, alice: User
) -> None:
    role = set_role(alice, first_project().organization, Role.MEMBER)
    forged = {"id": role.pk, "user": alice.pk, "role": "owner", "DELETE": "on"}
    body = NO_ROLES | {"memberships-TOTAL_FORMS": 1, "memberships-INITIAL_FORMS": 1}
    body |= {f"memberships-0-{name}": value for name, value in forged.items()}

    response = client.post(page_of("user", "change", alice.pk), body | {"username": "alice"})

    assert response.status_code == 302
    role.refresh_from_db()
    assert role.role == Role.MEMBER


def test_the_last_administrator_cannot_be_removed(client: Client, root: User) -> None:
    response = client.post(page_of("user", "change", root.pk), {"username": "root"} | NO_ROLES)

    assert "root is the last administrator" in text_of(response)
