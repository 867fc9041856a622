"""Pages of the console and the admin, and the usage that they show."""

import json
import re
from collections.abc import Iterable
from datetime import timedelta
from html import unescape
from typing import Any

from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from usage_builders import settlement

from vinery_accounts.models import Limit, LimitScope, User
from vinery_accounts.usage.entries import Settlement
from vinery_accounts.usage.store import store_settlements


def signed_in(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


def used(user: User, request_id: str, minutes_ago: float = 5, **changes: Any) -> Settlement:
    identity = {"user_id": user.pk, "username": user.username}
    started_at = timezone.now() - timedelta(minutes=minutes_ago)
    return settlement(request_id, started_at=started_at, **identity, **changes)


def page(client: Client, address: str) -> str:
    response = client.get(address)
    assert response.status_code == 200, response
    return response.content.decode()


def num_queries(client: Client, address: str) -> int:
    with CaptureQueriesContext(connection) as queries:
        page(client, address)
    return len(queries)


def text_of(response: Any, status: int = 200) -> str:
    """The text of a response with this status, without escapes."""
    assert response.status_code == status, response
    return unescape(response.content.decode())


def sent(client: Client, address: str, form: Any = None) -> str:
    """The text of the page that follows a form."""
    return text_of(client.post(address, form, follow=True))


def statuses(client: Client, *addresses: str, form: Any = None) -> set[int]:
    """The statuses of these pages and of their forms."""
    asked = [(client.get(each), client.post(each, form)) for each in addresses]
    return {response.status_code for both in asked for response in both}


def tile(text: str, id_: str) -> str:
    found = re.search(rf'id="{id_}".*?class="number">(?:<a .*?>)?(.*?)<', text, re.DOTALL)
    assert found is not None
    return found[1]


def store(*settlements: Settlement) -> None:
    store_settlements(settlements)


def numbers(text: str, ids: Iterable[str] = ("requests", "errors", "input", "output")) -> list[str]:
    return [tile(text, id_) for id_ in ids]


def limit_of(user: User, metric: str, window: str, amount: int, **more: Any) -> Limit:
    whose = {"scope": LimitScope.USER, "scope_id": user.pk}
    return Limit.objects.create(metric=metric, window=window, amount=amount, **whose, **more)


def charts_of(text: str) -> dict[str, dict[str, list[float | None]]]:
    """The values of each chart of a page, by the names of the chart and of the series."""
    found = {}
    for name, legend, data in re.findall(
        r"<h2>([^<]*)</h2>\s*<ul class=\"legend\">(.*?)</ul>.*?<script[^>]*>(.*?)</script>",
        text,
        re.DOTALL,
    ):
        series = [unescape(each) for each in re.findall(r"<span>(.*?)</span>", legend)]
        found[unescape(name)] = dict(zip(series, json.loads(data)["values"], strict=False))
    return found


def drawn(text: str, name: str) -> dict[str, float]:
    """The sum of each series of a chart."""
    return {key: sum(each or 0 for each in row) for key, row in charts_of(text)[name].items()}
