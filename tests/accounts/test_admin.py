"""Django's admin: each resource as it declares, the rows of one's role, secrets that are shown
once, and pages that the content security policy allows."""

import re
from html import unescape
from importlib import import_module
from typing import Any

import pytest
from api.api_client import Keys
from django.contrib import admin
from django.contrib.auth.models import Permission
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from isolation_tenants import fill
from pages import num_queries, page, sent, text_of
from row_builders import logged

from vinery_accounts.access import audit, changes
from vinery_accounts.access.changes import first_project, home_project, set_role
from vinery_accounts.keys.lifecycle import find_key
from vinery_accounts.models import ApiKey, AuditEntry, Limit, Organization, Project, Role, User

pytestmark = pytest.mark.usefixtures("root")

KEYS = "/admin/accounts/apikey/"
CALENDAR = {"time_zone": "UTC", "week_start": "monday"}
INLINE = r"<script(?![^>]*\bsrc=)|<style| style=| on[a-z]+="


def pages() -> list[Any]:
    """Return the pages of resources, which `vinery_platform.urls` has loaded in its order."""
    import_module("vinery_platform.urls")
    return [page for page in admin.site._registry.values() if hasattr(page, "resource")]


def address(page: Any, name: str, *arguments: object) -> str:
    options = page.opts
    return reverse(f"admin:{options.app_label}_{options.model_name}_{name}", args=arguments)


def page_of(table: str, page: str, *arguments: object) -> str:
    return reverse(f"admin:accounts_{table}_{page}", args=arguments)


def errors_of(response: Any) -> set[str]:
    return set(response.context["adminform"].form.errors)


def act_on(client: Client, action: str, *keys: ApiKey) -> str:
    """Run an action on the chosen rows, and return the page that follows."""
    return sent(client, KEYS, {"action": action, "_selected_action": [key.pk for key in keys]})


def test_each_resource_is_listed_shown_and_changed_as_it_declares(client: Client) -> None:
    fill("ours", 100)
    assert len(pages()) > 15
    for each in pages():
        listed = client.get(address(each, "changelist"))
        rows = listed.context["cl"].result_list
        heads = [name for name in each.resource.columns if name != "id"]
        text = listed.content.decode()
        shown = each.resource.empty_text if not rows else f"column-{heads[0]}"
        assert shown in unescape(text), each
        assert not rows or all(f"column-{name}" in text for name in heads), each
        may_add = "create" in each.resource.verbs
        assert client.get(address(each, "add")).status_code == (200 if may_add else 403), each
        for query in ({"q": "x"}, {"state": "unknown"}, {"project__id__exact": "9" * 30}):
            assert client.get(address(each, "changelist"), query).status_code in (200, 302, 400)
        for row in rows[:1]:
            detail = client.get(address(each, "change", row.pk))
            assert detail.status_code == 200, each
            names = each.resource.serializer().fields
            assert any(f"field-{name}" in detail.content.decode() for name in names), each
            if "change" not in each.resource.verbs:
                assert client.post(address(each, "change", row.pk), {}).status_code == 403, each
            if "create" not in each.resource.verbs:
                delete = address(each, "delete", row.pk)
                assert client.post(delete, {"post": "yes"}).status_code == 403, each


def check(client: Client, path: str) -> None:
    response = client.get(path)

    parts = response.headers["Content-Security-Policy"].split(";")
    policy = dict(part.strip().partition(" ")[::2] for part in parts)
    assert policy["default-src"] == policy["base-uri"] == policy["frame-ancestors"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert policy["form-action"] == "'self'"
    assert not re.search(INLINE, response.content.decode())


def test_no_page_has_what_the_policy_refuses(client: Client, alice: User) -> None:
    check(client, "/admin/")  # loads the models of the site
    assert len(admin.site._registry) > 10
    for each in admin.site._registry.values():
        check(client, address(each, "changelist"))
        check(client, address(each, "add"))
    for path in ("", "accounts/", "accounts/user/1/", "nothing/at/all/"):
        check(client, f"/admin/{path}")
    client.force_login(alice)
    check(client, "/admin/")  # the refusal
    client.logout()
    sign_in = client.get(reverse("account_login"))
    assert "unsafe" not in sign_in.headers["Content-Security-Policy"]
    assert not re.search(INLINE, sign_in.content.decode())


def test_a_new_key_is_shown_once_and_keeps_what_is_fixed(
    client: Client, root: User, alice: User
) -> None:
    add = f"{KEYS}add/"
    assert client.get(add).context["adminform"].form.initial["owner"] == root.pk
    models = {"allowed_models": "tiny-chat,  small, ", "allowed_networks": "127.0.0.0/8"}
    form = {"name": "laptop", "owner": alice.pk, "project": home_project(alice).pk, **models}
    form["scopes"] = ["inference", "manage"]
    past = {"expires_at_0": "2020-01-01", "expires_at_1": "00:00:00"}
    assert "Choose a time in the future" in sent(client, add, {**form, **past})
    assert not ApiKey.objects.exists()

    text = sent(client, add, {**form, "note": "ask Ann"})

    (secret,) = re.findall(r"<code>(vny_live_\w+)</code>", text)
    key = find_key(secret)
    assert (key.scopes, key.allowed_models) == (form["scopes"], ["tiny-chat", "small"])
    assert key.allowed_networks == ["127.0.0.0/8"]
    change = f"{KEYS}{key.pk}/change/"
    for where in (KEYS, change):
        assert secret not in page(client, where)
        assert key.hint in page(client, where)

    before = ApiKey.objects.filter(pk=key.pk).values().get()
    other = changes.add(Project(organization=key.project.organization, name="other"))
    forged = {"owner": root.pk, "project": other.pk, "hint": "forged", "digest": "forged"}
    forged["revoked_at_0"] = "2020-01-01"
    changed = {"name": "renamed", "scopes": ["usage"], "allowed_endpoints": "completions"}

    client.post(change, {**forged, **models, **changed, "note": "ask Bob"})

    after = ApiKey.objects.filter(pk=key.pk).values().get()
    differing = {column for column in before if before[column] != after[column]}
    assert differing == {*changed, "note", "updated_at"}


def test_actions_reach_the_chosen_rows_of_ones_role(
    client: Client, staff: User, new_key: Keys
) -> None:
    first, second = new_key("first").key, new_key("second").key
    for_two = num_queries(client, KEYS)
    for number in range(20):
        new_key(f"more {number}", owner=User.objects.create_user(f"user{number}"))
    assert num_queries(client, KEYS) == for_two

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

    delete, sure, num_keys = f"{KEYS}{second.pk}/delete/", {"post": "yes"}, ApiKey.objects.count()
    assert client.post(delete, sure).status_code == 403
    # Deleting the owner does not delete them either.
    client.post(f"/admin/accounts/user/{second.owner_id}/delete/", sure)
    assert ApiKey.objects.count() == num_keys
    User.objects.filter(pk=staff.pk).update(is_superuser=True)
    client.post(delete, sure)
    assert ApiKey.objects.count() == num_keys - 1


def test_staff_see_the_rows_of_their_own_organisations(
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
    body = {"name": "x", "owner": alice.pk, "project": project.pk, "scopes": ["inference"]}
    assert errors_of(client.post(f"{KEYS}add/", body)) == {"project"}
    assert ApiKey.objects.count() == 2
    client.force_login(root)
    assert str(project) in projects_to_choose(client.get(KEYS).context["cl"])


def projects_to_choose(changelist: Any) -> set[str]:
    """The names in the filter by a project."""
    (found,) = [each for each in changelist.filter_specs if each.title == "project"]
    return {name for _, name in found.lookup_choices}


def test_rows_are_created_changed_and_removed_by_the_rules(client: Client, alice: User) -> None:
    def send(address: str, body: dict[str, Any]) -> None:
        response = client.post(address, body)
        assert response.status_code == 302, errors_of(response)

    acme = changes.add(Organization(name="acme"))
    body = {"name": "search", "organization": acme.pk, "capture_hours": 0, "max_stored_mb": 9}
    send(page_of("project", "add"), body)
    project = Project.objects.get(name="search")
    changed = {"name": "search", "capture_hours": 2, "max_stored_mb": 9}
    send(page_of("project", "change", project.pk), changed)
    kind = {"scope": "project", "scope_id": project.pk, "metric": "tokens", "window": "day"}
    new = {**kind, "amount": 9, **CALENDAR}
    assert "There is no project 99" in sent(client, page_of("limit", "add"), new | {"scope_id": 99})
    send(page_of("limit", "add"), new)
    limit = Limit.objects.get()
    send(page_of("limit", "change", limit.pk), {**CALENDAR, "amount": 8})
    assert "search" in text_of(client.get(page_of("limit", "changelist")))
    send(page_of("limit", "delete", limit.pk), {"post": "yes"})

    assert Project.objects.get(pk=project.pk).capture_hours == 2
    actions = ("project.create", "project.update", "limit.create", "limit.update", "limit.delete")
    assert logged(actor="root") == list(actions)

    # What a rule refuses is a message at the form and on the list.
    role = changes.set_role(alice, acme, Role.OWNER)
    text = sent(client, page_of("membership", "change", role.pk), {"role": "viewer"})
    assert "alice is the last owner" in text
    client.post(page_of("membership", "delete", role.pk), {"post": "yes"})
    chosen = {"action": "delete_selected", "_selected_action": [role.pk], "post": "yes"}
    listed = sent(client, page_of("membership", "changelist"), chosen)
    assert "Alice is the last owner" in listed
    role.refresh_from_db()
    assert role.role == Role.OWNER


def test_only_superusers_change_users_and_each_change_is_audited(
    client: Client, root: User, staff: User, alice: User
) -> None:
    set_role(alice, first_project().organization, Role.MEMBER)
    change = page_of("user", "change", alice.pk)
    password = reverse("admin:auth_user_password_change", args=[alice.pk])
    for each in (change, page_of("user", "changelist")):
        assert "alice" in page(client, each)
    assert client.post(change, {"username": "alice", "is_superuser": "on"}).status_code == 403
    for each in (page_of("user", "add"), password):
        assert client.get(each).status_code == 403

    client.force_login(root)
    permission = Permission.objects.all()[0]
    ticked = {"is_staff": "on", "is_email_confirmed": "on"}
    body = {"username": "alice", "user_permissions": [permission.pk], **ticked}
    assert client.post(change, body).status_code == 302
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
    own = sent(client, page_of("user", "change", root.pk), {"username": "root"})
    assert "root is the last administrator" in own
