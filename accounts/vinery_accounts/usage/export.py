"""Usage records and refusals as CSV or JSON Lines, one page at a time, in constant memory.

Columns keep their names and order; new columns are added at the end."""

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, TypeAlias

import msgspec
from django.db.models import F, Q, QuerySet

from vinery_accounts.base.money import MILLION
from vinery_accounts.models import OWNERS, RefusedRequest, UsageRecord
from vinery_accounts.usage import filters
from vinery_accounts.usage.filters import Conditions, Dimension, restriction

_Row: TypeAlias = dict[str, Any]

COLUMNS = (
    *("request_id", "client_request_id", "created_at", "organization_id", "organization_name"),
    *("organization_exists", "project_id", "project_name", "project_exists", "user_id", "username"),
    *("user_exists", "key_id", "key_name", "key_exists", "ip", "model", "asked_model", "endpoint"),
    *("dialect", "is_streamed", "outcome", "http_status", "finish_reason", "error_code"),
    *("num_prompt_tokens", "num_cached_tokens", "num_image_tokens", "num_audio_tokens"),
    *("num_output_tokens", "num_reasoning_tokens", "weighted_tokens", "queue_ms", "prefill_ms"),
    *("first_token_ms", "inter_token_ms", "total_ms", "num_request_bytes", "num_response_bytes"),
    *("num_continuations", "num_media", "num_media_bytes", "num_media_pixels", "fetch_ms"),
    *("decode_ms", "encode_ms", "is_exact", "num_video_tokens", "mm_hashes", "end_user"),
    *("error_message", "error_param", "cost", "parameters"),
)

REFUSAL_COLUMNS = (
    *("request_id", "created_at", "organization_id", "organization_name", "project_id"),
    *("project_name", "user_id", "username", "key_id", "key_name", "model", "limit_id", "scope"),
    *("metric", "window", "amount", "level", "needed", "wait_s", "is_shadow", "effect"),
)

_PAGE_SIZE = 1000
_STORED = tuple(column for column in COLUMNS if not column.endswith("_exists"))
# Characters with which a formula begins in a spreadsheet.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


class Format(StrEnum):
    CSV = "csv"
    JSONL = "jsonl"

    @property
    def content_type(self) -> str:
        return "text/csv; charset=utf-8" if self is Format.CSV else "application/jsonl"


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The exported records. A bound of None is no bound; `until` is exclusive."""

    visible: Conditions | None  # None: everything
    since: datetime | None = None
    until: datetime | None = None
    filters: Conditions = field(default_factory=dict)


def records(selection: Selection) -> QuerySet[UsageRecord]:
    # The first digit of the status, as in roll-ups: both databases divide integers.
    rows = UsageRecord.objects.alias(status_class=F("http_status") / 100)
    rows = rows.filter(restriction(selection.filters, selection.visible))
    bounds = {"created_at__gte": selection.since, "created_at__lt": selection.until}
    return rows.filter(**{name: bound for name, bound in bounds.items() if bound is not None})


# Those that usually find the fewest come first.
_INDEXED = tuple(map(Dimension, ("end_user", "key", "user", "project", "model")))


def of_one_index(selection: Selection) -> Selection:
    """Return a selection that has the records of this one, and that one index finds: several
    filters may have nothing in common."""
    visible, filters = selection.visible, selection.filters
    if visible is not None and visible.keys() <= set(_INDEXED):
        return replace(selection, filters={})
    one = [(each, filters[each]) for each in _INDEXED if each in filters][:1]
    return replace(selection, visible=None, filters=dict(one))


def since_of_newest(selection: Selection, most: int, *conditions: Q) -> datetime | None:
    """Return the time of the oldest record, if the newest `most` are to be searched; None: all."""
    rows = records(of_one_index(selection)).filter(*conditions).order_by("-created_at")
    return rows.values_list("created_at", flat=True)[most : most + 1].first()


def export(selection: Selection, form: Format) -> Iterator[str]:
    """Yield the text of all records in order of time, one page at a time, in whole lines."""
    pages = _pages(records(selection).values("id", *_STORED))
    return _written(COLUMNS, map(_with_more, pages), form)


def export_refusals(rows: QuerySet[RefusedRequest], form: Format) -> Iterator[str]:
    pages = _pages(filters.with_effect(rows).values("id", *REFUSAL_COLUMNS))
    return _written(REFUSAL_COLUMNS, pages, form)


def _written(columns: Sequence[str], pages: Iterable[list[_Row]], form: Format) -> Iterator[str]:
    encode = csv_of if form is Format.CSV else _jsonl
    if form is Format.CSV:
        yield csv_of([dict(zip(columns, columns, strict=True))], columns)
    for page in pages:
        for row in page:
            row["created_at"] = _moment(row["created_at"])
        yield encode(page, columns)


def _pages(rows: QuerySet[Any, _Row]) -> Iterator[list[_Row]]:
    """Yield pages by the position of the last row, so that each page costs the same."""
    rows = rows.order_by("created_at", "id")
    page = list(rows[:_PAGE_SIZE])
    while page:
        last_at, last_id = page[-1]["created_at"], page[-1]["id"]
        yield page
        after = Q(created_at__gt=last_at) | Q(id__gt=last_id)
        page = list(rows.filter(after, created_at__gte=last_at)[:_PAGE_SIZE])


def _with_more(page: list[_Row]) -> list[_Row]:
    """Add whether the owners exist. The cost is in the currency; empty: none."""
    for row in page:
        row["parameters"] = row["parameters"] and msgspec.json.decode(row["parameters"])
        row["cost"] = round(row["cost"] / MILLION, 9) or None
    for owner in (column.removesuffix("_id") for column in filters.NAME_COLUMNS):
        table = OWNERS[owner]
        ids = {row[f"{owner}_id"] for row in page} - {None}
        existing = set(table._default_manager.filter(pk__in=ids).values_list("pk", flat=True))
        for row in page:
            row[f"{owner}_exists"] = row[f"{owner}_id"] in existing
    return page


def _moment(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def _jsonl(rows: Sequence[_Row], columns: Sequence[str]) -> str:
    lines = (msgspec.json.encode({column: row[column] for column in columns}) for row in rows)
    return "".join(f"{line.decode()}\n" for line in lines)


def csv_of(rows: Sequence[_Row], columns: Sequence[str]) -> str:
    text = io.StringIO()
    csv.writer(text).writerows([_cell(row[column]) for column in columns] for row in rows)
    return text.getvalue()


def _cell(value: Any) -> Any:
    """Return the value of a CSV cell. A text that a spreadsheet would run gets a quote first."""
    match value:
        case bool():
            return "true" if value else "false"
        case dict():
            return msgspec.json.encode(value).decode()
        case str() if value.startswith(_FORMULA):
            return f"'{value}"
        case _:
            return value
