"""Refused media are counted in memory and stored by a thread, in a bounded number of rows."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from django.db import OperationalError

from vinery_accounts.models import Project
from vinery_serving.media.rules import Denial, DenialReason
from vinery_serving.media.tables import denials
from vinery_serving.media.tables.denials import Count, DenialQueue, Refused
from vinery_serving.media.tables.models import MediaDenial

pytestmark = pytest.mark.stores
HERE: dict[str, Any] = {"scheme": "https", "host": "a.example", "port": 443}
NO_RULE = Denial(DenialReason.NO_RULE, "platform", **HERE)
TOO_LARGE = Denial(DenialReason.MAX_BYTES, "project", **HERE, rule_id=7, detail="9 MB")


def test_equal_denials_of_a_project_are_one_row_with_a_count(project: Project) -> None:
    queue, caller = DenialQueue(), (project.organization_id, project.pk)
    for _ in range(3):
        queue.put(NO_RULE, *caller)
    queue.put(TOO_LARGE, *caller)
    queue.put(NO_RULE, None, None)

    queue.store()
    queue.put(NO_RULE, *caller)
    queue.store()

    rows = {(row.reason, row.project_name): row for row in MediaDenial.objects.all()}
    assert {key: row.num for key, row in rows.items()} == {
        ("no_rule", "one"): 4,
        ("max_bytes", "one"): 1,
        ("no_rule", ""): 1,
    }
    first = rows["no_rule", "one"]
    assert (first.organization_name, first.what) == ("ours", "https://a.example")
    assert first.first_at < first.last_at
    too_large = rows["max_bytes", "one"]
    assert (too_large.rule_id, too_large.detail) == (7, "9 MB")

    queue = DenialQueue()
    folder = "/srv/\0\ud800" + "a" * 900
    queue.put(Denial(DenialReason.NO_RULE, "platform", folder=folder), None, None)
    queue.store()
    (row,) = MediaDenial.objects.exclude(folder="")
    assert row.what == ("/srv/?" + "a" * 900)[: denials.MAX_FOLDER]


def test_the_oldest_rows_of_an_organisation_are_dropped_and_no_others(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(denials, "MAX_ROWS", 2)
    queue = DenialQueue()
    queue.put(NO_RULE, None, None)
    for number in range(4):
        queue.put(replace(NO_RULE, host=f"{number}.example"), project.organization_id, project.pk)

    queue.store()

    ours = MediaDenial.objects.filter(project_id=project.pk)
    assert [row.host for row in ours] == ["3.example", "2.example"]
    assert MediaDenial.objects.filter(project_id=0).count() == 1


def test_denials_wait_for_the_database_and_are_dropped_in_excess(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    errors: list[Exception] = [RuntimeError(), OperationalError()]
    stored: list[Mapping[Refused, Count]] = []

    def store(batch: Mapping[Refused, Count]) -> None:
        if errors:
            raise errors.pop()
        stored.append(batch)

    monkeypatch.setattr(denials, "store_denials", store)
    monkeypatch.setattr(denials, "_MAX_WAITING", 1)
    queue = DenialQueue()
    queue.put(NO_RULE, 1, 2)
    queue.store()
    queue.put(NO_RULE, 1, 2)
    queue.put(NO_RULE, 1, 3)
    assert [count.num for count in queue._waiting.values()] == [2]

    queue.store()  # any other error than that of the database
    assert len(queue) == 0

    queue.put(NO_RULE, 1, 2)
    queue.store()
    queue.store()
    assert [[count.num for count in batch.values()] for batch in stored] == [[1]]
