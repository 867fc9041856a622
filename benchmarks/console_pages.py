"""The server time of the console's pages, over the usage that `generated_usage` has written."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import combinations
from typing import Any

from django.conf import settings
from django.db import models
from django.test import Client
from django.urls import reverse

from benchmarks.generated_usage import owners
from vinery_accounts.models import (
    ApiKey,
    Currency,
    Membership,
    ModelWeight,
    Organization,
    Project,
    Role,
    UsageRecord,
    User,
)
from vinery_accounts.signin.sessions import cookie_of
from vinery_accounts.usage.filters import Dimension
from vinery_accounts.usage.rollups import Slice

_MONTH = "period=30d"
# End users are not in roll-ups.
_SPLITS = sorted(each.value for each in Dimension if each is not Dimension.END_USER)
_OVERVIEW = (
    *("", _MONTH, f"{_MONTH}&compare=on", "period=last-month", "period=365d"),
    *(f"{_MONTH}&zone=Europe/Berlin&compare=on", f"{_MONTH}&key=1", "period=7d&granularity=hour"),
)
_USAGE = (
    *(f"{_MONTH}&by={by}" for by in _SPLITS),
    *(f"{_MONTH}&by={by}&by2={by2}" for by, by2 in combinations(_SPLITS, 2)),
    *(f"{_MONTH}&by=key&sort=cost", f"{_MONTH}&by=user&most=cost&sort=name"),
    *(f"{_MONTH}&by=key&by2=model&compare=on", "period=last-month&by=user&by2=model"),
    *(f"{_MONTH}&by=user&by2=model&zone=Europe/Berlin", f"{_MONTH}&by=key&most=cached_share"),
    *("period=7d&by=model&granularity=hour", f"{_MONTH}&by=user&model=model-1&project=1"),
    *("period=365d&by=key&by2=model", "by=key&by2=model"),
    *(f"{_MONTH}&by=end_user", f"{_MONTH}&by=end_user&by2=model"),
)
_REQUESTS = (
    *("", _MONTH, f"{_MONTH}&outcome=failed", f"{_MONTH}&outcome=rejected&outcome=failed"),
    *(f"{_MONTH}&status={each}" for each in ("5xx", "none", "3xx")),
    *(f"{_MONTH}&endpoint=embeddings", f"{_MONTH}&model=model-1", f"{_MONTH}&model=none"),
    *(f"{_MONTH}&error=none", f"{_MONTH}&search=none", f"{_MONTH}&end_user=none"),
    *(f"{_MONTH}&key=1", f"{_MONTH}&key=299&outcome=failed", f"{_MONTH}&user=1&status=5xx"),
    *(f"{_MONTH}&project=1", f"{_MONTH}&project=1&model=model-1&status=5xx"),
    *(f"{_MONTH}&organization=1", f"{_MONTH}&organization=1&outcome=failed"),
    f"{_MONTH}&user=1&model=model-1&status=5xx",
)


def write_owners() -> None:
    """Write the owners of the made-up usage, some prices, and who reads the pages."""
    found = owners()
    for kind, table, more in (
        ("organization", Organization, ()),
        ("project", Project, ("organization_id",)),
        ("user", User, ()),
        ("key", ApiKey, ("project_id",)),
    ):
        rows = {getattr(each, f"{kind}_id"): _row(table, kind, each, more) for each in found}
        manager: Any = table._default_manager
        manager.bulk_create(rows.values())
    User.objects.create(pk=10_000, username="root", is_superuser=True)
    Membership.objects.create(user_id=1, organization_id=3, role=Role.OWNER)
    Membership.objects.create(user_id=2, organization_id=4, role=Role.MEMBER)
    Currency.objects.create(code="EUR")
    ModelWeight.objects.bulk_create(ModelWeight(model=f"model-{at}") for at in range(1, 7))


def _row(table: type[models.Model], kind: str, of: Slice, more: tuple[str, ...]) -> models.Model:
    values: dict[str, Any] = {each: getattr(of, each) for each in more}
    values |= {"pk": getattr(of, f"{kind}_id")}
    if kind == "user":
        return table(username=of.username, **values)
    if kind == "key":
        values |= {"owner_id": of.user_id, "digest": f"{of.key_id}", "pepper_id": 1}
    return table(name=getattr(of, f"{kind}_name"), **values)


def pages() -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield the name of each page, and the call that gets it: for an administrator, then for an
    owner of an organisation and for a member."""
    oldest, newest = (UsageRecord.objects.order_by(order).first() for order in ("id", "-id"))
    assert oldest and newest
    middle = oldest.created_at + (newest.created_at - oldest.created_at) / 2
    queries = {
        "overview": _OVERVIEW,
        "usage": _USAGE,
        "usage-table": (f"{_MONTH}&by=key", f"{_MONTH}&by=key&by2=model"),
        "requests": (*_REQUESTS, f"period=90d&before={middle.timestamp():.0f}000000.0"),
        "statements": ("", f"month={middle:%Y-%m}"),
        "statement-file": ("", f"month={middle:%Y-%m}"),
        "account": ("",),
    }
    rows = {"request": newest.request_id, "key": 1, "users-row": 1, "projects-row": 1}
    for reader, number in {"": 10_000, ", an owner": 1, ", a member": 2}.items():
        client = signed_in(User.objects.get(pk=number))
        for page, asked in queries.items():
            for query in asked[:4] if reader else asked:
                address = f"{reverse(f'console:{page}')}?{query}"
                yield f"{page} {query}{reader}", getting(client, address)
        for page, key in rows.items() if not reader else ():
            yield page, getting(client, reverse(f"console:{page}", args=[key]))


def signed_in(user: User) -> Client:
    client = Client(SERVER_NAME="127.0.0.1")
    client.force_login(user)
    cookie = client.cookies[settings.SESSION_COOKIE_NAME]
    client.cookies[settings.SESSION_COOKIE_NAME] = cookie_of(cookie.value)
    return client


def getting(client: Client, address: str) -> Callable[[], object]:
    def get() -> None:
        response = client.get(address)
        assert response.status_code == 200, (address, response.status_code)

    return get
