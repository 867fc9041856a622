"""Exports contain every usage record once, in fixed columns, without formulas of spreadsheets."""

import csv
import io
import json
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from usage_builders import NOON, store

from tests.accounts.key_tables import MakeKey
from vinery_accounts.access import changes
from vinery_accounts.access.access import Access
from vinery_accounts.models import Project, Role, User
from vinery_accounts.usage import export as export_module
from vinery_accounts.usage.entries import Outcome
from vinery_accounts.usage.export import COLUMNS, Format, Selection, export
from vinery_accounts.usage.filters import Dimension

pytestmark = [pytest.mark.django_db, pytest.mark.stores]


def store_requests(num: int, **changes: Any) -> None:
    """Store some requests at the same moment, so that a page ends between equal times."""
    for n in range(num):
        store(f"r{n}", started_at=NOON + timedelta(seconds=n // 3), **changes)


def csv_rows(selection: Selection) -> list[dict[str, str]]:
    text = "".join(export(selection, Format.CSV))
    return list(csv.DictReader(io.StringIO(text, newline="")))


def json_rows(selection: Selection) -> list[dict[str, Any]]:
    return [json.loads(line) for line in "".join(export(selection, Format.JSONL)).splitlines()]


EVERYTHING = Selection(visible=None)


def test_every_record_is_exported_once_in_order_of_time(monkeypatch: pytest.MonkeyPatch) -> None:
    store_requests(14)
    for page_size in (1, 2, 7, 1000):
        monkeypatch.setattr(export_module, "_PAGE_SIZE", page_size)
        for rows in (csv_rows(EVERYTHING), json_rows(EVERYTHING)):
            assert [row["request_id"] for row in rows] == [f"r{n}" for n in range(14)], page_size


def test_both_formats_have_fixed_columns_and_the_same_values() -> None:
    store_requests(1)

    assert next(export(EVERYTHING, Format.CSV)) == ",".join(COLUMNS) + "\r\n"
    assert list(json_rows(EVERYTHING)[0]) == list(COLUMNS)
    assert COLUMNS[:3] == ("request_id", "client_request_id", "created_at")
    result, exact = csv_rows(EVERYTHING)[0], json_rows(EVERYTHING)[0]
    assert exact["created_at"] == result["created_at"] == "2026-03-01T12:00:00.000000Z"
    assert (result["is_streamed"], exact["is_streamed"]) == ("true", True)
    assert (result["project_id"], exact["project_id"]) == ("", None)
    assert (result["total_ms"], exact["total_ms"]) == ("340.0", 340.0)


def test_an_export_is_filtered_and_limited_to_what_is_visible() -> None:
    store_requests(6, user_id=7)
    at = NOON + timedelta(seconds=1)

    def num(**changes: Any) -> int:
        return len(json_rows(Selection(**{"visible": None, **changes})))

    assert num(since=at) == 3
    assert num(until=at) == 3
    assert num(filters={Dimension.MODEL: frozenset({"other"})}) == 0
    assert num(visible={Dimension.USER: frozenset({7})}) == 6
    assert num(visible={Dimension.USER: frozenset({8})}) == 0
    assert num(visible={}) == 0


def test_an_owner_exports_the_message_and_the_field_of_a_refused_request(
    alice: User, bob: User, search: Project
) -> None:
    changes.set_role(alice, search, Role.OWNER)
    refused = {"outcome": Outcome.REJECTED, "http_status": 400, "error_code": "invalid_value"}
    text = {"error_message": "`stop` must be a string.", "error_param": "stop"}
    store("r1", user_id=bob.pk, project_id=search.pk, parameters='{"n": 2}', **refused, **text)
    store("old", user_id=bob.pk, project_id=search.pk, **refused)

    rows = json_rows(Selection(visible=Access.of(alice).visible()))
    assert [row["error_param"] for row in rows] == ["stop", ""]
    assert rows[0].items() >= text.items()
    assert [row["parameters"] for row in rows] == [{"n": 2}, None]
    assert [row["parameters"] for row in csv_rows(EVERYTHING)] == ['{"n":2}', ""]
    assert list(COLUMNS)[-4:] == [*text, "cost", "parameters"]


def test_an_export_is_filtered_by_the_class_of_the_status() -> None:
    expected = {"2xx": [200, 200], "4xx": [400, 429, 499], "5xx": [500], None: [None]}
    for number, status in enumerate(status for each in expected.values() for status in each):
        store(f"r{number}", http_status=status)
    for name, statuses in expected.items():
        of_class = Selection(visible=None, filters={Dimension.STATUS: frozenset({name})})
        assert [row["http_status"] for row in json_rows(of_class)] == statuses


def test_an_export_shows_whether_the_owner_still_exists(alice: User, new_key: MakeKey) -> None:
    key = new_key().key
    store_requests(1, user_id=alice.pk, key_id=key.pk, project_id=key.project_id)
    before = json_rows(EVERYTHING)[0]
    key.delete()

    after = json_rows(EVERYTHING)[0]

    assert (before["key_exists"], before["user_exists"], before["project_exists"]) == (True,) * 3
    assert (after["key_exists"], after["user_exists"]) == (False, True)
    assert (after["key_id"], after["key_name"]) == (before["key_id"], "laptop")
    assert before["organization_exists"] is False  # the request had no organisation


def test_no_cell_is_a_formula_of_a_spreadsheet() -> None:
    texts = ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1"]
    for number, text in enumerate(texts):
        store(f"r{number}", key_name=text, client_request_id=text)

    assert [row["key_name"] for row in csv_rows(EVERYTHING)] == [f"'{text}" for text in texts]
    assert [row["key_name"] for row in json_rows(EVERYTHING)] == texts


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"])))
def test_any_text_is_read_again_from_its_cell(text: str) -> None:
    row = {"text": text, "number": 5, "nothing": None}
    written = export_module.csv_of([row], tuple(row))

    [[read, number, nothing]] = csv.reader(io.StringIO(written, newline=""))
    assert read.removeprefix("'") == text.removeprefix("'")
    assert not read.startswith(("=", "+", "-", "@"))
    assert (number, nothing) == ("5", "")
