"""Keys, organisations, limits, users and usage records in Django's admin.

They are limited to the user's scope, validated and audited.
"""

import re
from typing import Any

import pytest
from api.api_client import Keys
from django.contrib.auth.models import Permission
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from pages import page, sent, text_of
from row_builders import captured, logged, stored_refusal

from vinery_accounts.access import audit, changes
from vinery_accounts.access.changes import first_project, set_role
from vinery_accounts.captures.store import store_captured
from vinery_accounts.keys.lifecycle import find_key
from vinery_accounts.models import ApiKey, AuditEntry, Limit, Organization, Project, Role, User

pytestmark = pytest.mark.usefixtures("root")

KEYS = "/admin/accounts/apikey/"
ADD_KEY = f"{KEYS}add/"
CALENDAR = {"time_zone": "UTC", "week_start": "monday"}
NO_ROLES = {f"memberships-{name}_FORMS": 0 for name in ("TOTAL", "INITIAL", "MIN_NUM", "MAX_NUM")}


def page_of(table: str, page: str, *arguments: object) -> str:
    return reverse(f"admin:accounts_{table}_{page}", args=arguments)


def errors_of(response: Any) -> set[str]:
    return set(response.context["adminform"].form.errors)


def act_on(client: Client, action: str, *keys: ApiKey) -> str:
    """Run an action on the chosen rows, and return the page that follows."""
    return sent(client, KEYS, {"action": action, "_selected_action": [key.pk for key in keys]})


def key_for(owner: User, *scopes: str) -> dict[str, Any]:
    """The form of a new key in the first project."""
    project = first_project().pk
    return {"name": "x", "owner": owner.pk, "project": project, "scopes": scopes or ["inference"]}


def test_keys_are_paused_resumed_and_rotated(client: Client, staff: User, new_key: Keys) -> None:
    first, second = new_key("first").key, new_key("second").key

    assert "2 of the selected keys paused" in act_on(client, "pause", first, second)
    assert "1 of the selected keys resumed" in act_on(client, "resume", first)
    text = act_on(client, "rotate", first)

    (secret,) = re.findall(r"<code>(vny_live_\w+)</code>", text)
    first.refresh_from_db()
    second.refresh_from_db()
    assert find_key(secret) == first.replaced_by
    assert second.state_at(timezone.now()) == "paused"
    assert "rotated already" in act_on(client, "rotate", first)
    done = [action.removeprefix("key.") for action in logged(actor="staff")]
    assert done == ["pause", "pause", "resume", "create", "rotate"]
    assert audit.verify().broken is None


def test_staff_see_the_rows_and_roles_of_their_own_organisations(
    client: Client, staff: User, new_key: Keys, alice: User, root: User
) -> None:
    acme = changes.add(Organization(name="acme"))
    project = changes.add(Project(organization=acme, name="search"))
    second = changes.add(Project(organization=first_project().organization, name="second"))
    new_key("ours")
    elsewhere = new_key("elsewhere", project=project).key

    page_of_keys = client.get(KEYS).context["cl"]
    assert [key.name for key in page_of_keys.result_list] == ["ours"]
    assert projects_to_choose(page_of_keys) == {"default / default", str(second)}
    act_on(client, "revoke", elsewhere)
    assert ApiKey.objects.get(pk=elsewhere.pk).revoked_at is None
    choices = {"app_label": "accounts", "model_name": "apikey", "field_name": "project"}
    found = client.get(reverse("admin:autocomplete"), choices).json()
    assert [each["text"] for each in found["results"]] == ["default / default", str(second)]
    body = key_for(alice) | {"project": project.pk}
    assert errors_of(client.post(ADD_KEY, body)) == {"project"}
    assert ApiKey.objects.count() == 2

    set_role(alice, first_project().organization, Role.VIEWER)
    set_role(alice, acme, Role.OWNER)

    def shown(reader: User) -> list[str]:
        client.force_login(reader)
        response = client.get(page_of("user", "change", alice.pk))
        (roles,) = response.context["inline_admin_formsets"]
        return sorted(str(form.instance.organization) for form in roles.formset.forms)

    assert shown(staff) == ["default"]
    assert shown(root) == ["acme", "default"]
    # Root, who is signed in now, may filter by all projects.
    assert str(project) in projects_to_choose(client.get(KEYS).context["cl"])


def projects_to_choose(changelist: Any) -> set[str]:
    """The names in the filter by a project."""
    (found,) = [each for each in changelist.filter_specs if each.title == "project"]
    return {name for _, name in found.lookup_choices}


def test_captures_are_listed_without_their_texts(client: Client, staff: User, root: User) -> None:
    project = changes.change(first_project(), capture_hours=1)
    assert store_captured([captured(project, "req_1", b"Zanzibarium")])
    (row,) = client.get(page_of("capture", "changelist")).context["cl"].result_list
    pages = [page_of("capture", "changelist"), page_of("capture", "change", row.pk)]

    for user in (root, staff):
        client.force_login(user)
        for each in pages:
            text = text_of(client.get(each))
            assert "req_1" in text
            assert "Zanzibarium" not in text
    set_role(staff, project.organization, Role.VIEWER)
    assert "req_1" not in text_of(client.get(pages[0]))


def test_scopes_roles_and_limits_are_created_and_changed(client: Client, alice: User) -> None:
    def send(address: str, body: dict[str, Any]) -> None:
        response = client.post(address, body)
        assert response.status_code == 302, errors_of(response)

    send(page_of("organization", "add"), {"name": "acme"})
    acme = Organization.objects.get(name="acme")
    body = {"name": "search", "organization": acme.pk, "capture_hours": 0, "max_stored_mb": 9}
    send(page_of("project", "add"), body)
    project = Project.objects.get(name="search")
    changed = {"name": "search", "capture_hours": 2, "max_stored_mb": 9}
    send(page_of("project", "change", project.pk), changed)
    role = {"user": alice.pk, "organization": acme.pk, "role": "owner"}
    send(page_of("membership", "add"), role)
    kind = {"scope": "project", "scope_id": project.pk, "metric": "tokens", "window": "day"}
    new = {**kind, "amount": 9, **CALENDAR}
    assert "There is no project 99" in sent(client, page_of("limit", "add"), new | {"scope_id": 99})
    send(page_of("limit", "add"), new)
    limit = Limit.objects.get()
    send(page_of("limit", "change", limit.pk), {**CALENDAR, "amount": 8})
    assert "search" in text_of(client.get(page_of("limit", "changelist")))
    send(page_of("limit", "delete", limit.pk), {"post": "yes"})
    weight = {"model": "m", "uncached": 1, "cached": 0, "output": 2, "image": 1}
    send(page_of("modelweight", "add"), weight)

    assert Project.objects.get(pk=project.pk).capture_hours == 2
    assert logged(actor="root") == [
        *("organization.create", "project.create", "project.update", "membership.create"),
        *("limit.create", "limit.update", "limit.delete", "weight.create"),
    ]


def test_the_last_owner_and_administrator_remain(client: Client, root: User, alice: User) -> None:
    role = changes.set_role(alice, changes.add(Organization(name="acme")), Role.OWNER)

    text = sent(client, page_of("membership", "change", role.pk), {"role": "viewer"})
    assert "alice is the last owner" in text
    client.post(page_of("membership", "delete", role.pk), {"post": "yes"})
    chosen = {"action": "delete_selected", "_selected_action": [role.pk], "post": "yes"}
    listed = sent(client, page_of("membership", "changelist"), chosen)
    assert "Alice is the last owner" in listed
    role.refresh_from_db()
    assert role.role == Role.OWNER
    own = sent(client, page_of("user", "change", root.pk), {"username": "root"} | NO_ROLES)
    assert "root is the last administrator" in own


def test_records_are_shown_and_searched(client: Client, alice: User) -> None:
    changes.set_active(alice, False)
    rows = {"auditentry": AuditEntry.objects.get(), "refusedrequest": stored_refusal()}
    for name, row in rows.items():
        change = page_of(name, "change", row.pk)
        assert str(row) in text_of(client.get(change))
        assert "alice" in text_of(client.get(page_of(name, "changelist"), {"q": "alice"}))
    for text, num in (("deactivate", 1), ("nothing of it", 0)):
        found = client.get(page_of("auditentry", "changelist"), {"q": text})
        assert len(found.context["cl"].result_list) == num


def test_only_superusers_change_users(client: Client, staff: User, alice: User) -> None:
    set_role(alice, first_project().organization, Role.MEMBER)
    change = page_of("user", "change", alice.pk)

    for address in (change, page_of("user", "changelist")):
        assert "alice" in page(client, address)
    assert client.post(change, {"username": "alice", "is_superuser": "on"}).status_code == 403
    assert client.get(page_of("user", "add")).status_code == 403
    password = reverse("admin:auth_user_password_change", args=[alice.pk])
    assert client.get(password).status_code == 403


def test_users_are_created_and_changed_without_their_roles(client: Client, alice: User) -> None:
    permission = Permission.objects.all()[0]
    ticked = {"is_staff": "on", "is_email_confirmed": "on"}
    body = {"username": "alice", "user_permissions": [permission.pk], **ticked}
    response = client.post(page_of("user", "change", alice.pk), body | NO_ROLES)
    assert response.status_code == 302
    password = reverse("admin:auth_user_password_change", args=[alice.pk])
    words = {"password1": "correct-horse-7", "password2": "correct-horse-7"}
    assert client.post(password, words | {"usable_password": "true"}).status_code == 302
    new = {"username": "charlie", **words, "usable_password": "true"}
    assert client.post(page_of("user", "add"), new).status_code == 302
    assert User.objects.get(username="charlie").check_password("correct-horse-7")

    result = {entry.action: entry for entry in AuditEntry.objects.filter(target="alice")}
    assert set(result) == {"user.update", "user.permit", "user.password"}
    assert result["user.update"].after == {"is_active": False, "is_staff": True}
    assert result["user.permit"].after == {"user_permissions": [permission.pk]}
    assert result["user.password"].after is None

    role = set_role(alice, first_project().organization, Role.MEMBER)
    forged = {"id": role.pk, "user": alice.pk, "role": "owner", "DELETE": "on"}
    body = NO_ROLES | {"memberships-TOTAL_FORMS": 1, "memberships-INITIAL_FORMS": 1}
    body |= {f"memberships-0-{name}": value for name, value in forged.items()}

    response = client.post(page_of("user", "change", alice.pk), body | {"username": "alice"})
    assert response.status_code == 302
    role.refresh_from_db()
    assert role.role == Role.MEMBER
