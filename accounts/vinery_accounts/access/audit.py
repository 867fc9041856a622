"""The audit log: every change with its actor, in a hash chain.

An entry's hash is the SHA-256 of canonical JSON of its other fields, including the hash of the
previous entry. So `verify` finds every entry that was changed, removed or inserted. `verify` cannot
see that the newest entries were removed, unless it gets the newest hash from elsewhere.

An entry is written in the transaction of its change. One writer at a time extends the chain: on
SQLite because transactions are IMMEDIATE, on PostgreSQL by a lock taken before the change reads.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime
from enum import StrEnum
from itertools import product
from typing import Any, Final, TypeVar

from django.db import connection, models, transaction
from django.db.models import Q, QuerySet
from django.db.models.functions import Cast
from django.utils import timezone

from vinery_accounts.base import change_signal
from vinery_accounts.base.actors import Actor, current_actor
from vinery_accounts.models import (
    ApiKey,
    AuditEntry,
    Capture,
    Invitation,
    Limit,
    Membership,
    Organization,
    Project,
    QuarantinedRequest,
    ScopedRow,
    UsageRecord,
    User,
    Webhook,
)
from vinery_accounts.models.stored import OwnedRow
from vinery_accounts.outbound.addresses import read_address

BEGINNING: Final = "0" * 64  # the previous hash of the first entry
_LOCK_ID: Final = 0x76696E796C6F67  # arbitrary; no other advisory lock uses it
# Secrets, and fields that change without an action of a user.
_EXCLUDED: Final = frozenset(
    {"password", "digest", "pepper_id", "secret", "previous_secret", "encrypted_texts", "sealed"}
    | {"updated_at", "created_at"}
    | {"last_login", "last_used_at", "last_used_ip", "last_used_model", "date_joined"}
)
_HASHED: Final = (
    *("number", "created_at", "actor_id", "actor", "ip", "action", "organization_id"),
    *("target_kind", "target_id", "target", "before", "after", "previous_hash"),
)

_VALUES: Final = ("before", "after")

_WIDTHS: Final = {
    field.name: field.max_length
    for field in AuditEntry._meta.fields
    if isinstance(field, models.CharField)
}

Values = Mapping[str, Any]
EntriesT = TypeVar("EntriesT", bound=QuerySet[AuditEntry])


@contextmanager
def writing() -> Iterator[None]:
    """A transaction that may extend the chain. A change must read its rows inside. Then `before` is
    correct, and two writers cannot deadlock. The commit signals the change to other processes."""
    with transaction.atomic():
        if connection.vendor == "postgresql":
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK_ID])
        change_signal.send_after_commit()
        yield


def record(
    action: str,
    target: models.Model,
    *,
    before: Values | None = None,
    after: Values | None = None,
    target_id: object = None,
    by: Actor | None = None,
) -> AuditEntry:
    """Add an entry. `action` is a verb such as `revoke`; the entry stores `key.revoke`. `target_id`
    replaces the primary key of a row that is not in the database."""
    actor = by or current_actor()
    kind = kind_of(target)
    with writing():
        newest = AuditEntry.objects.order_by("-number").first()
        entry = AuditEntry(
            number=1 if newest is None else newest.number + 1,
            created_at=timezone.now(),
            actor_id=actor.user_id,
            actor=_fitting("actor", actor.name),
            ip=actor.ip,
            action=f"{kind}.{action}",
            organization_id=organization_of(target),
            target_kind=kind,
            target_id=str(target.pk if target_id is None else target_id),
            target=_fitting("target", str(target)),
            before=None if before is None else _plain(before),
            after=None if after is None else _plain(after),
            previous_hash=BEGINNING if newest is None else newest.hash,
        )
        entry.hash = hash_of(entry)
        entry.save(force_insert=True)
    return entry


def record_change(action: str, target: models.Model, before: Values) -> AuditEntry | None:
    """Add an entry with the fields that differ from `before`. Returns None if none differs. Fields
    that `before` does not name are ignored."""
    after = snapshot(target)
    changed = [name for name in after if name in before and before[name] != after[name]]
    if not changed:
        return None
    return record(
        action,
        target,
        before={name: before[name] for name in changed},
        after={name: after[name] for name in changed},
    )


def snapshot(row: models.Model) -> dict[str, Any]:
    """A row's columns without secrets, as JSON values."""
    fields = row._meta.concrete_fields
    values = {field.attname: getattr(row, field.attname) for field in fields}
    return {name: _plain(value) for name, value in values.items() if name not in _EXCLUDED}


def kind_of(row: models.Model) -> str:
    named = {
        "apikey": "key",
        "servedmodel": "model",
        "storedresponse": "stored_response",
        "storedchat": "stored_chat",
        "modelalias": "alias",
        "modeljob": "job",
        "modelweight": "weight",
        "quarantinedrequest": "quarantine",
        "usagerecord": "request",
        "mediarule": "media_rule",
        "mediafolder": "media_folder",
        "medialimit": "media_limit",
    }
    name = str(row._meta.model_name)
    return named.get(name, name)


def hash_of(entry: AuditEntry) -> str:
    fields = _plain({name: getattr(entry, name) for name in _HASHED})
    text = json.dumps(fields, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def search(entries: EntriesT, text: str) -> EntriesT:
    found = Q(actor__icontains=text) | Q(action__icontains=text) | Q(target__icontains=text)
    found |= Q(target_id=text)
    if read_address(text):
        found |= Q(ip=text)
    # In its JSON, SQLite escapes letters beyond ASCII, and PostgreSQL does not.
    written = {json.dumps(text, ensure_ascii=is_ascii)[1:-1] for is_ascii in (True, False)}
    for name, part in product(_VALUES, sorted(written)):
        found |= Q(**{f"{name}_text__icontains": part})
    texts = {f"{name}_text": Cast(name, models.TextField()) for name in _VALUES}
    return entries.alias(**texts).filter(found)


# -- Verifying


class Break(StrEnum):
    CHANGED = "changed"
    MISSING = "missing"
    INSERTED = "inserted"
    CUT = "cut"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of `verify`. `number` is that of the first broken entry."""

    num_entries: int
    newest_hash: str
    broken: Break | None = None
    number: int | None = None
    message: str = ""


def verify(expected: str | None = None) -> Verdict:
    """Follow the chain from its beginning to the first break. `expected` is an earlier newest hash.
    If no entry has it, entries were removed from the end."""
    previous, number, has_expected = BEGINNING, 0, expected in (None, BEGINNING)
    for entry in AuditEntry.objects.order_by("number", "id").iterator(chunk_size=1000):
        broken = _find_break(entry, number + 1, previous)
        if broken is not None:
            return Verdict(number, previous, *broken)
        number, previous = entry.number, entry.hash
        has_expected = has_expected or entry.hash == expected
    if not has_expected:
        return Verdict(
            number,
            previous,
            Break.CUT,
            number + 1,
            f"The chain ends with entry {number}, and no entry has the hash {expected}: later "
            "ones were removed.",
        )
    return Verdict(number, previous)


def _find_break(entry: AuditEntry, number: int, previous: str) -> tuple[Break, int, str] | None:
    if entry.number > number:
        last = entry.number - 1
        which = f"Entry {number} is" if last == number else f"Entries {number} to {last} are"
        return Break.MISSING, number, f"{which} missing."
    if entry.number < number:
        return Break.INSERTED, entry.number, f"There is a second entry {entry.number}."
    if hash_of(entry) != entry.hash:
        return Break.CHANGED, number, f"Entry {number} does not match its hash: it was changed."
    if entry.previous_hash != previous:
        before = f"entry {number - 1}" if number > 1 else "the beginning"
        return (
            Break.INSERTED,
            number,
            f"Entry {number} does not follow {before}: one of them was inserted or replaced.",
        )
    return None


# -- Details


def organization_of(row: models.Model) -> int | None:
    """The id of the organisation whose admins see the entry; None for superusers only."""
    match row:
        case ApiKey():
            return row.project.organization_id
        case Project() | Membership() | Invitation() | Webhook():
            return row.organization_id
        case ScopedRow() | QuarantinedRequest() | UsageRecord():
            return row.organization_id
        case User():
            memberships = Membership.objects.filter(user_id=row.pk).order_by()
            ids = set(memberships.values_list("organization_id", flat=True)[:1000])
            return ids.pop() if len(ids) == 1 else None
        case Limit():
            owner = row.owner()
            return None if owner is None else organization_of(owner)
        case Capture() | OwnedRow():
            project = Project.objects.filter(pk=row.project_id or 0).first()
            return None if project is None else project.organization_id
        case Organization():
            return row.pk
    return None


def _plain(value: Any) -> Any:
    """The value as JSON that every database returns unchanged. PostgreSQL stores whole floats as
    integers and no NUL."""
    match value:
        case datetime():
            return value.astimezone(UTC).isoformat()
        case date():
            return value.isoformat()
        case str():
            return str(value).replace("\0", "")
        case float() if value.is_integer():
            return int(value)
        case None | bool() | int() | float():
            return value
        case Mapping():
            return {_plain(str(name)): _plain(each) for name, each in value.items()}
        case list() | tuple() | set() | frozenset():
            return [_plain(each) for each in value]
    return str(value)


def _fitting(column: str, text: str) -> str:
    return text.replace("\0", "")[: _WIDTHS[column]]
