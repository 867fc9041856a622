"""The console shows users their own usage, with the numbers of the usage records."""

import re
from datetime import UTC, datetime, timedelta
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from django.test import Client
from django.utils import timezone
from pages import limit_of, numbers, page, signed_in, store, tile, used
from row_builders import stored_limit
from usage_builders import NOON

from tests.tables import table
from vinery_accounts.access import served
from vinery_accounts.access.changes import first_project, set_role
from vinery_accounts.access.served import Served
from vinery_accounts.alerts.quotas import Quota
from vinery_accounts.console import overview
from vinery_accounts.console.limits import closest
from vinery_accounts.keys.lifecycle import create_key
from vinery_accounts.limits.rules import Metric, Window
from vinery_accounts.models import ApiKey, Limit, Role, User
from vinery_accounts.usage.entries import Outcome

pytestmark = pytest.mark.django_db


def url_after(client: Client, address: str) -> str:
    response: Any = client.get(address)
    return str(response.url)


def test_users_are_led_to_the_console_and_others_to_the_sign_in(root: User, alice: User) -> None:
    assert url_after(Client(), "/console/") == "/accounts/login/?next=/console/"
    assert url_after(Client(), "/") == "/accounts/login/"
    for user, is_administrator in ((root, True), (alice, False)):
        assert url_after(signed_in(user), "/") == "/console/"
        assert ("Administration" in page(signed_in(user), "/console/")) is is_administrator


def test_the_overview_adds_up_the_period_or_has_advice(alice: User) -> None:
    store(used(alice, "old", minutes_ago=3000))
    response = signed_in(alice).get("/console/")
    text = response.content.decode()

    foreign = r"<script(?! src=| type=.application/json)|<style| style=| on[a-z]+="
    assert not re.search(foreign, text)
    assert response.headers["Cache-Control"] == "no-store, private"
    assert numbers(text) == ["0", "0", "0", "0"]
    assert "create an API key</a>" in text
    assert "First steps" not in text
    assert "<figure" not in text

    failed: dict[str, Any] = {"outcome": Outcome.FAILED, "http_status": 500}
    store(used(alice, "r1"), used(alice, "r2", **failed))

    client = signed_in(alice)
    assert numbers(page(client, "/console/")) == ["2", "1", "22", "60"]
    assert numbers(page(client, "/console/?period=7d")) == ["3", "1", "33", "90"]
    assert tile(page(client, "/console/"), "total").endswith("\xa0ms")


def steps(user: User) -> dict[str, bool]:
    """The first steps on the overview, and which are done."""
    text = page(signed_in(user), "/console/")
    found = re.findall(r'<li( class="done")?><a href="/console/[^"]+">(.*?)</a>', text)
    return {name: bool(done) for done, name in found}


def test_the_first_steps_are_those_that_the_person_may_do_until_the_first_answer(
    alice: User, root: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = first_project()
    models = [Served("tiny-chat", is_for_chats=True)]
    monkeypatch.setattr(served, "_readers", [lambda: models])
    model, key, answer, limit = (
        *("Have a model ready", "Create an API key", "Get a first answer"),
        "Set a limit",
    )
    assert steps(root) == {model: False, key: False, answer: False, limit: False}
    assert steps(alice) == {}  # no role, so no key
    set_role(alice, project, Role.MEMBER)
    assert steps(alice) == {key: False, answer: False}

    models[:] = [Served("tiny-chat", is_for_chats=True, answers_chats=True)]
    for user in (root, alice):
        create_key(owner=user, name="k", project=project)
    limit_of(root, Metric.REQUESTS, Window.DAY, 5)
    assert steps(root) == {model: True, key: True, answer: False, limit: True}
    assert steps(alice) == {key: True, answer: False}

    store(used(alice, "r1", outcome=Outcome.REJECTED, http_status=400))
    assert steps(alice) == {key: True, answer: False}
    assert numbers(page(signed_in(alice), "/console/")) == ["1", "1", "11", "30"]

    store(used(alice, "r2", minutes_ago=3000))
    assert steps(alice) == steps(root) == {}
    mate = User.objects.create_user("mate")
    set_role(mate, project, Role.MEMBER)
    assert steps(mate) == {key: False, answer: False}  # the answers were those of others


def test_the_settings_of_each_client_have_the_address_and_a_model(
    alice: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = signed_in(alice)
    monkeypatch.setattr(served, "_readers", [list])
    assert "no model for the examples yet" in page(client, "/console/connect/")

    models = [
        Served("idle", is_for_chats=True),
        Served("m-1", is_for_chats=True, answers_chats=True),
    ]
    monkeypatch.setattr(served, "_readers", [lambda: models])
    first = page(client, "/console/connect/")
    names = [unescape(each) for each in re.findall(r'href="\?client=[^"]+"[^>]*>(.*?)</a>', first)]
    guide = (Path(__file__).parents[2] / "docs/guides/clients.md").read_text()
    in_guide = re.findall(r"^## \d+\. (?:Clients of )?(.+)$", guide, re.MULTILINE)
    assert names == ["curl", *in_guide]
    for name in names:
        text = page(client, f"/console/connect/?client={quote(name)}")
        assert f"<h2>{name}</h2>" in text
        found = re.search(r'<pre id="example">(.*?)</pre>', text, re.DOTALL)
        assert found is not None
        settings = unescape(found[1])
        assert "http://testserver" in settings, name
        assert "vny_..." in settings or name == "Codex"
        assert "m-1" in settings or name in ("Open WebUI", "Cohere")
        assert not re.search("<(base|root|key|model)>", settings)


def test_a_filter_is_applied_and_can_be_removed(alice: User) -> None:
    store(used(alice, "r1", model="a"), used(alice, "r2", model="b"))

    text = page(signed_in(alice), "/console/?period=1h&model=a")

    assert tile(text, "requests") == "1"
    assert '<a href="/console/?period=1h" title="Show all again">model: a' in text


@pytest.fixture
def one_request(alice: User) -> None:
    store(used(alice, "r1"))


@table(
    "query, complaint",
    [
        ("period=own&since=2026-03-02T00:00&until=2026-03-01T00:00", "ends before it begins"),
        ("period=90d&granularity=minute", "makes more than 400"),
        ("since=1970-01-01T00:00&until=9000-01-01T00:00", "makes more than 1500"),
        ("since=0001-01-01T00:00&zone=Asia/Tokyo", "Choose a year from 1970 to 9000"),
        ("zone=Mars/Olympus", "There is no time zone Mars/Olympus"),
    ],
)
def test_an_invalid_period_is_reported_and_the_last_day_is_shown(
    alice: User, one_request: None, query: str, complaint: str
) -> None:
    text = page(signed_in(alice), f"/console/?{query}")

    assert complaint in text
    assert tile(text, "requests") == "1"


def quota_cells(text: str, name: str) -> list[str]:
    section = text.partition("Quotas near their limit")[2].partition("</section>")[0]
    cells = re.findall(rf'data-name="{name}">(.*?)</td>', section)
    return [re.sub("</?time.*?>", "", cell) for cell in cells]


def test_the_overview_shows_the_quotas_near_their_limit(alice: User, root: User) -> None:
    store(used(alice, "r0", weighted_tokens=0.0))
    assert "Quotas near" not in page(signed_in(alice), "/console/")  # there is no quota
    limit_of(alice, Metric.WEIGHTED_TOKENS, Window.NONE, 2000)
    assert "Quotas near" not in page(signed_in(alice), "/console/")  # there is no usage yet
    stored_limit("platform", metric="weighted_tokens", window="none", amount=1000)
    store(used(alice, "r1", weighted_tokens=1500.0))

    hers, all_ = (page(signed_in(user), "/console/") for user in (alice, root))

    assert quota_cells(hers, "Used") == ["75 %"]
    assert quota_cells(hers, "Resets") == ["never"]
    assert re.fullmatch(
        r"may be exhausted at \d{4}-\d\d-\d\d \d\d:\d\d", quota_cells(hers, "Projected")[0]
    )
    assert "The user alice" in hers
    assert '<a href="/console/limits/">All limits</a>' in hers
    # She may not see the usage of all users.
    assert quota_cells(all_, "Used") == ["150 %", "75 %"]
    assert quota_cells(all_, "Projected")[0] == '<strong class="bad">exhausted</strong>'


def test_quotas_are_sorted_by_forecast_and_then_by_usage() -> None:
    def quota(percent: int, hours: int | None = None) -> Quota:
        end = None if hours is None else datetime(2026, 3, 1, hours, tzinfo=UTC)
        return Quota(Limit(pk=percent, amount=100), percent, NOON, None, end)

    many = [quota(0), quota(90), quota(60), quota(20, 3), quota(30, 2), quota(10, 1), quota(100)]

    assert [each.percent for each in closest(many)] == [100, 10, 30, 20, 90]
    assert [each.percent for each in closest(many[:3])] == [90, 60]
    assert closest([]) == []


def test_the_overview_says_what_needs_attention_and_where_the_cure_is(
    root: User, alice: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overview, "_checks", [list])
    models = [Served("chat", state="ready", row_id=7), Served("other", is_alias=True)]
    monkeypatch.setattr(served, "_readers", [lambda: models])
    text = page(signed_in(root), "/console/")
    assert "All is well." in text
    assert "1 model ready" in text
    assert '<a href="/console/models/7/"><code>chat</code></a>' in text

    models.append(Served("cut", state="failed", reason="A file is cut.", row_id=8))
    monkeypatch.setattr(overview, "_checks", [lambda: ["Table of models: unknown."]])
    create_key(owner=alice, name="nightly", project=first_project())
    soon = timezone.now() + timedelta(hours=30)
    ApiKey.objects.update(expires_at=soon, created_at=soon - timedelta(days=30))
    key = ApiKey.objects.get()
    create_key(owner=alice, name="of hours", project=first_project(), expires_at=soon)
    limit_of(alice, "tokens", "day", 100)
    store(used(alice, "r1", 0, num_prompt_tokens=90, num_output_tokens=20))

    def findings(user: User) -> list[str]:
        listed = page(signed_in(user), "/console/").partition('class="findings">')[2]
        rows = re.findall("<li>(.*?)</li>", listed.partition("</ul>")[0])
        return [re.sub(r'<a href="(.*?)">.*?</a>', r"\1", unescape(each)) for each in rows]

    key_page = f"The key nightly expires in 30 h. /console/keys/{key.pk}/"
    assert findings(root) == [
        "The model cut failed to load. A file is cut. /console/models/8/",
        "Table of models: unknown.",
        "The quota of tokens per day of the user alice is used up. #quotas",
        key_page,
        "Alerts about quotas reach nobody: there is no e-mail address and no webhook. "
        "/console/webhooks/new/",
    ]
    assert findings(alice) == [
        "The model cut failed to load. An administrator sees why.",
        "The quota of tokens per day of the user alice is used up. #quotas",
        key_page,
    ]
    for names in (["chat"], []):
        models[:] = [Served(each, state="unloaded") for each in names]
        assert findings(alice)[0] == (
            "No model is loaded, so no request is answered. /console/models/"
        )


def test_tiles_are_short_with_exact_numbers_and_the_speed_of_answers(alice: User) -> None:
    store(used(alice, "r1", num_prompt_tokens=15_828_249, inter_token_ms=20.0))

    text = page(signed_in(alice), "/console/")

    assert tile(text, "input") == "15.8M"
    assert 'title="15,828,249"' in text
    assert float(tile(text, "speed")) == pytest.approx(50, rel=0.05)
    assert "?period=last-month&amp;by=user" in text
