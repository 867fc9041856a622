"""Usage over the management API: visibility, filters, groups, points over time, and the export."""

import json
from datetime import timedelta
from typing import Any

import pytest
from api_client import Api, Tenant
from asgiref.sync import async_to_sync
from django.test import AsyncClient
from usage_builders import NOON, store

from tests.tables import table
from vinery_accounts.models import User
from vinery_accounts.usage.entries import Outcome

pytestmark = pytest.mark.stores

PERIOD = {"from": "2026-03-01T00:00Z", "to": "2026-03-02T00:00Z"}


@pytest.fixture
def records(ours: Tenant, theirs: Tenant, viewer: Api) -> None:
    """Store three requests of `ours` and one of `theirs`.

    Ours have two projects and two models. One request failed.
    """
    me = User.objects.get(username="viewer")

    def record(name: str, project: Any, **more: Any) -> None:
        organization = project.organization
        ids = {"organization_id": organization.pk, "organization_name": organization.name}
        ids |= {"project_id": project.pk, "project_name": project.name}
        store(name, **{**ids, "user_id": None, "username": "carol", **more})

    later = NOON + timedelta(hours=1)
    record("a", ours.one)
    record("b", ours.one, started_at=later, model="other", user_id=me.pk)
    record("c", ours.two, started_at=later, outcome=Outcome.FAILED, http_status=500)
    record("d", theirs.one)


def test_users_and_keys_see_the_usage_of_their_projects(
    viewer: Api, root: Api, ours: Tenant, theirs: Tenant, records: None
) -> None:
    project_member = ours.as_role("member", ours.one)
    for api, num_requests in ((viewer, 3), (project_member, 2), (root, 4)):
        usage = api.get("usage/", **PERIOD)
        assert usage["totals"]["num_requests"] == num_requests
        assert usage["totals"]["num_tokens"] == 41 * num_requests
        assert (usage["points"], usage["groups"], usage["num_groups"]) == ([], [], 0)
    for query in ({"project": theirs.one.pk}, {"organization": theirs.organization.pk}):
        assert viewer.get("usage/", **PERIOD, **query)["totals"]["num_requests"] == 0

    usage_client = ours.with_key(ours.one, scopes=["usage"])
    assert usage_client.get("usage/", **PERIOD)["totals"]["num_requests"] == 2
    inference_client = ours.with_key(ours.one, scopes=["inference"])
    for path in ("usage/", "usage/export/"):
        assert inference_client.error("GET", path) == (403, "missing_scope", None)
        assert Api().error("GET", path)[0] == 401


def test_usage_is_grouped_also_over_time(viewer: Api, ours: Tenant, records: None) -> None:
    def groups(by: str, **query: Any) -> dict[Any, int]:
        usage = viewer.get("usage/", group_by=by, **PERIOD, **query)
        assert usage["num_groups"] == len(usage["groups"])
        return {
            tuple(group["values"].values()): group["figures"]["num_requests"]
            for group in usage["groups"]
        }

    me = User.objects.get(username="viewer").pk
    assert groups("project") == {(ours.one.pk,): 2, (ours.two.pk,): 1}
    assert groups("organization") == {(ours.organization.pk,): 3}
    assert groups("model") == {("reference-chat",): 2, ("other",): 1}
    assert groups("outcome") == {("ok",): 2, ("failed",): 1}
    assert groups("status") == {("2xx",): 2, ("5xx",): 1}
    assert groups("status", status="4xx,5xx") == {("5xx",): 1}
    assert groups("status", status="none") == {}
    assert groups("user") == {(None,): 2, (me,): 1}
    assert groups("key") == {(None,): 3}
    assert groups("endpoint") == {("chat/completions",): 3}
    both = {(ours.one.pk, "reference-chat"): 1, (ours.one.pk, "other"): 1}
    assert groups("project, model", outcome="ok") == both
    assert groups("model", project=ours.two.pk) == {("reference-chat",): 1}
    (group, _) = viewer.get("usage/", group_by="project", **PERIOD)["groups"]
    assert group["names"] == {"project": "ours one"}

    usage = viewer.get("usage/", group_by="model", granularity="hour", **PERIOD)

    nums = {point["since"]: point["figures"]["num_requests"] for point in usage["points"]}
    used = {since: num for since, num in nums.items() if num}
    assert used == {"2026-03-01T12:00:00Z": 1, "2026-03-01T13:00:00Z": 2}
    assert len(usage["points"]) == 24
    assert all(len(group["points"]) == 24 for group in usage["groups"])
    day = viewer.get("usage/", granularity="day", time_zone="Asia/Tokyo", **PERIOD)["points"]
    assert [point["figures"]["num_requests"] for point in day] == [3, 0]


def test_usage_by_end_user_is_that_of_what_its_reader_may_see(viewer: Api, ours: Tenant) -> None:
    ids = {"organization_id": ours.organization.pk, "project_id": ours.one.pk}
    store("a", "b", end_user="ann", **ids)
    store("c", end_user="ann")  # of another organisation
    groups = viewer.get("usage/", group_by="end_user", granularity="hour", **PERIOD)["groups"]
    (by_ann,) = [each for each in groups if each["values"] == {"end_user": "ann"}]
    assert by_ann["figures"]["num_requests"] == 2
    of_ann = viewer.get("usage/", end_user="ann", **PERIOD)["totals"]
    assert (of_ann["num_requests"], of_ann["num_taken"]) == (2, 2)


@table(
    "query, param",
    [
        ({"group_by": "key,colour"}, "group_by"),
        ({"from": "0001-01-01T00:00Z"}, "from"),
        ({"to": "9999-12-31T23:59-14:00"}, "to"),
        ({"key": "1,,2"}, "key"),
        ({"outcome": "fine"}, "outcome"),
        ({"status": "4xx,"}, "status"),
        ({"granularity": "minute", "from": "2025-01-01T00:00Z"}, "granularity"),
        ({"time_zone": "Mars"}, "time_zone"),
        ({"sort": "name"}, "sort"),
        ({"limit": 0}, "limit"),
        ({"from": "2026-03-03T00:00Z"}, "from"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_an_invalid_parameter_is_named(viewer: Api, query: dict[str, Any], param: str) -> None:
    assert viewer.error("GET", "usage/", **{**PERIOD, **query})[::2] == (400, param)


@pytest.mark.django_db(transaction=True)
@table("form", ["csv", "jsonl"])
def test_the_server_streams_usage_records_as_a_file(ours: Tenant, records: None, form: str) -> None:
    new = ours.key(ours.one, scopes=["usage"])

    async def fetch() -> tuple[Any, str]:
        response = await AsyncClient().get(
            "/api/usage/export",
            {**PERIOD, "file": form, "model": "other,reference-chat"},
            headers={"authorization": f"Bearer {new.secret}", "accept": "text/plain"},
        )
        return response, b"".join([part async for part in response.streaming_content]).decode()

    response, text = async_to_sync(fetch)()

    assert response.status_code == 200
    assert response["content-disposition"] == f'attachment; filename="usage.{form}"'
    assert response["cache-control"] == "no-store"
    lines = text.splitlines()
    if form == "csv":
        assert "request_id" in lines[0]
        assert len(lines) == 3
    else:
        assert [json.loads(line)["request_id"] for line in lines] == ["a", "b"]
