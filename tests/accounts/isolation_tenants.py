"""Organisations with a row in every table, for the sweep of what one learns of another. All rows of
an organisation begin at the same id in every table, so that one id is foreign for each endpoint,
also for endpoints that this file does not know."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

import row_builders as rows
from allauth.account.models import EmailAddress
from allauth.mfa.models import Authenticator
from allauth.socialaccount.models import SocialAccount
from allauth.usersessions.models import UserSession
from django.apps import apps
from django.contrib.admin.models import LogEntry
from django.contrib.contenttypes.models import ContentType
from django.contrib.sessions.models import Session
from django.db import connection, transaction
from django.db.models import AutoField, BigAutoField
from django.utils import timezone
from stored_builders import (
    Owner,
    message,
    store_chat,
    store_conversation,
    store_response,
    store_run,
)
from usage_builders import store

from vinery_accounts.access import changes
from vinery_accounts.alerts.webhooks import make as make_webhook
from vinery_accounts.keys.lifecycle import NewKey, create_key
from vinery_accounts.models import (
    ApiKey,
    DayRollup,
    Delivery,
    Limit,
    Organization,
    Project,
    Role,
    SavedView,
    Scope,
    SpanRollup,
    StoredChat,
    StoredItem,
    User,
)
from vinery_serving.media.tables.models import MediaFolder, MediaLimit, MediaRule

NUM_IDS: Final = 4
"""So many ids from the first one exist in the tables that have several rows of a tenant."""
OURS, THEIRS = "evil", "acme"
OWN_ID, FOREIGN_ID = 5_000_001, 7_000_001


@dataclass(frozen=True)
class Tenant:
    """An organisation, its users by role, and its keys by scope."""

    organization: Organization
    users: dict[str, User]
    keys: dict[str, NewKey]


@contextmanager
def rolled_back() -> Iterator[None]:
    """Roll back everything that is stored inside."""
    with transaction.atomic():
        yield
        transaction.set_rollback(True)


def fill(name: str, first_id: int, text: str = "") -> Tenant:
    """Store an organisation with a row in every table, of which the first has the id `first_id`.

    User names begin with `name`; other names are `text`, or `name` without one.
    """
    _start_ids_at(first_id)
    text = text or name
    organization = changes.add(Organization(name=text))
    one, two = (
        changes.add(Project(organization=organization, name=each)) for each in (text, f"{text} 2")
    )
    users = {
        "owner": _user(name, name, organization, Role.OWNER),
        "admin": _user(name, f"{name}-admin", organization, Role.ADMIN),
        "viewer": _user(name, f"{name}-viewer", organization, Role.VIEWER),
        "project admin": _user(name, f"{name}-project-admin", one, Role.ADMIN),
        "member": _user(name, f"{name}-member", two, Role.MEMBER),
    }
    keys = {
        "manage": create_key(
            owner=users["owner"], project=one, name=text, note=text, scopes=[Scope.MANAGE]
        ),
        "usage": create_key(
            owner=users["viewer"], project=one, name=text, scopes=[Scope.USAGE, Scope.INFERENCE]
        ),
    }
    tenant = Tenant(organization, users, keys)
    _store_limits(tenant, one)
    _store_invitations(tenant, one)
    _store_usage(tenant, one, f"{first_id}")
    _store_remembered(tenant, one, f"{first_id}")
    _store_messages(tenant, one, name)
    _store_media(tenant, one, name)
    _store_signin(text, users["owner"])
    SavedView.objects.create(user=users["owner"], name=text, page="requests", query=f"model={text}")
    User.objects.filter(pk=users["owner"].pk).update(first_name=text, last_name=text)
    return tenant


def _start_ids_at(first_id: int) -> None:
    """Let the next row of each table have this id."""
    tables = [
        (model._meta.db_table, model._meta.pk.column)
        for model in apps.get_models()
        if isinstance(model._meta.pk, AutoField | BigAutoField)
    ]
    with connection.cursor() as cursor:
        for table, column in tables:
            if connection.vendor == "sqlite":
                cursor.execute("DELETE FROM sqlite_sequence WHERE name = %s", [table])
                cursor.execute("INSERT INTO sqlite_sequence VALUES (%s, %s)", [table, first_id - 1])
            else:
                sequence = "setval(pg_get_serial_sequence(%s, %s), %s)"
                cursor.execute(f"SELECT {sequence}", [f'"{table}"', column, first_id - 1])


def _user(name: str, username: str, scope: Organization | Project, role: str) -> User:
    return changes.add_user(username, email=f"{username}@{name}.example", scope=scope, role=role)


def _store_limits(tenant: Tenant, project: Project) -> None:
    key = tenant.keys["manage"].key
    for scope, scope_id, window in (
        ("project", project.pk, "day"),
        ("organization", tenant.organization.pk, "minute"),
        ("key", key.pk, "month"),
        ("user", tenant.users["member"].pk, "week"),
    ):
        rows.stored_limit(scope, scope_id, window=window)


def _store_invitations(tenant: Tenant, project: Project) -> None:
    name = tenant.organization.name
    for scope in (tenant.organization, project):
        changes.invite(f"{name}-invited", scope, Role.MEMBER)


def _store_usage(tenant: Tenant, project: Project, request_id: str) -> None:
    """Store a request with usage, a capture, a refusal by a limit, and quarantine."""
    key, user, now = tenant.keys["manage"].key, tenant.users["owner"], timezone.now()
    name = tenant.organization.name
    whose = {
        "user_id": user.pk,
        "username": user.username,
        "key_id": key.pk,
        "key_name": key.name,
        "project_id": project.pk,
        "project_name": project.name,
        "organization_id": tenant.organization.pk,
        "organization_name": name,
        "model": name,
    }
    moment = now - timedelta(minutes=5)
    store(request_id, started_at=moment, client_request_id=name, **whose)
    day = DayRollup.objects.order_by("-pk").values()[0]
    SpanRollup.objects.create(**{column: day[column] for column in day if column != "id"})
    rows.stored_refusal(request_id, created_at=moment, scope=f"project:{project.pk}", **whose)
    rows.stored_capture(request_id, project.pk)
    rows.stored_quarantined(request_id, request_id=request_id, created_at=moment, **whose)


def _store_remembered(tenant: Tenant, project: Project, id_: str) -> None:
    """Store a response, a conversation, a chat, and a background response with its run."""
    owner = Owner(project.pk, tenant.users["owner"].pk, tenant.keys["manage"].key.pk)
    store_response(id_, owner)
    store_conversation(id_, owner, message(f"msg_{id_}"))
    store_chat(id_, owner, topic=id_)
    store_run(f"resp_{id_}_run", owner)
    for table in (StoredItem, StoredChat):  # readings are audited, and would be changes
        table.objects.filter(project_id=project.pk).update(sealed=b"unreadable")


def _store_messages(tenant: Tenant, project: Project, host: str) -> None:
    """Store an alert, which goes to a webhook and to a user."""
    owner, now = tenant.keys["manage"].key.owner, timezone.now()
    name, organization = tenant.organization.name, tenant.organization
    hook = changes.add(make_webhook(name, f"https://hooks.{host}.example/", organization)[0])
    alert = rows.stored_alert(
        limit_id=Limit.objects.get(scope="project", scope_id=project.pk).pk,
        organization_id=organization.pk,
        scope=f"project:{project.pk}",
        whose=name,
    )
    Delivery.objects.create(alert=alert, webhook=hook, due_at=now)
    Delivery.objects.create(alert=alert, user=owner, due_at=now)


def _store_media(tenant: Tenant, project: Project, host: str) -> None:
    """Store rules of the organisation and of a project, and denials."""
    organization, note = tenant.organization, tenant.organization.name
    for scope, one in ((None, f"{host}.example"), (project, f"one.{host}.example")):
        whose: dict[str, Any] = {"organization": organization, "project": scope}
        changes.add(MediaRule(**whose, host=one, note=note))
        changes.add(MediaFolder(**whose, folder=f"/{one}", note=note))
        changes.add(MediaLimit(**whose, max_media=9))
    rows.stored_denial(project, level="project", host=host)


def _store_signin(text: str, user: User) -> None:
    """Store the rows that allauth and Django's admin keep of a user."""
    EmailAddress.objects.create(user=user, email=user.email, verified=True, primary=True)
    Authenticator.objects.create(
        user=user, type=Authenticator.Type.RECOVERY_CODES, data={"seed": text}
    )
    SocialAccount.objects.create(user=user, provider=text, uid=text)
    UserSession.objects.create(user=user, ip="192.0.2.1", user_agent=text, session_key=str(user.pk))
    Session.objects.create(session_key=str(user.pk), session_data="", expire_date=timezone.now())
    LogEntry.objects.create(
        user=user,
        content_type=ContentType.objects.get_for_model(ApiKey),
        object_id=str(ApiKey.objects.filter(owner=user)[0].pk),
        object_repr=text,
        action_flag=2,
        change_message=text,
    )


def rows_of(first_id: int) -> dict[str, list[Any]]:
    """Return the rows from this id on, by table. Sessions have no number as their id."""
    return {
        model._meta.label: list(
            model._base_manager.filter(pk__gte=first_id).order_by("pk").values()
        )
        for model in apps.get_models()
        if isinstance(model._meta.pk, AutoField | BigAutoField)
    }
