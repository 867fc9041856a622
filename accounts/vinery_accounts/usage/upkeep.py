"""The upkeep of usage: old rows are deleted, roll-ups are compared with the usage records, and
sums of three days are written for reports over long periods."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, time, timedelta
from typing import Any

from django.db import transaction
from django.db.models import F, Min, Model, QuerySet, Sum

from vinery_accounts.base.querysets import delete_in_batches
from vinery_accounts.models import DayRollup, Rollup, SpanRollup, UsageRecord, usage
from vinery_accounts.usage import rollups
from vinery_accounts.usage.histogram import decode
from vinery_accounts.usage.periods import Reading, moment_of, round_down, round_up, seconds_of
from vinery_accounts.usage.rollups import (
    DAY_S,
    HOUR_S,
    LEVELS,
    MINUTE_S,
    ROLLUP_DIMENSIONS,
    SPAN_S,
    SUMS,
    RollupDimensions,
    Slice,
    Tallies,
)

# -- Retention: the cutoff of a table, since which it is complete, is stored before its rows are
# deleted. Reports switch to coarser roll-ups at that moment, so their totals do not change.

EVER = datetime(1, 1, 1, tzinfo=UTC)
# The tables by the names in settings (`VINERY_RETENTION_*_DAYS`).
TABLES: dict[str, type[Model]] = {
    "rows": usage.UsageRecord,
    "by_minute": usage.MinuteRollup,
    "by_hour": usage.HourRollup,
    "by_day": usage.DayRollup,
    "refusals": usage.RefusedRequest,
}


def kept_since(table: type[Model]) -> datetime:
    """Return the time from which all rows exist; `EVER` if none was deleted yet."""
    return all_kept_since()[table]


def all_kept_since() -> dict[type[Model], datetime]:
    stored = dict(usage.RetentionCutoff.objects.values_list("table", "kept_since"))
    return {table: stored.get(str(table._meta.model_name), EVER) for table in TABLES.values()}


def delete_old(keep_days: Mapping[str, int], now: datetime) -> dict[str, int]:
    """Delete rows older than `keep_days` whole days in UTC; 0 keeps all rows of a table. Returns
    the number of deleted rows by table."""
    today = datetime.combine(now.astimezone(UTC).date(), time(), UTC)
    return {
        name: _delete_before(TABLES[name], today - timedelta(days=days))
        for name, days in keep_days.items()
        if days
    }


def _delete_before(table: type[Model], moment: datetime) -> int:
    if moment > kept_since(table):  # a longer retention brings no rows back
        usage.RetentionCutoff.objects.update_or_create(
            table=table._meta.model_name, defaults={"kept_since": moment}
        )
    is_rollup = issubclass(table, usage.Rollup)
    column, bound = ("start_s", int(moment.timestamp())) if is_rollup else ("created_at", moment)
    rows = table._default_manager.filter(**{f"{column}__lt": bound}).order_by(column)
    return delete_in_batches(rows)


# -- Roll-ups and records


_UNIT_NAMES = {MINUTE_S: "minute", HOUR_S: "hour", DAY_S: "day"}
_ROWS_IN_MEMORY = 5000


@dataclass(frozen=True, slots=True)
class Checked:
    """The result for one day in UTC. A difference is a sum of one slice, in words."""

    day: datetime
    num_rows: int
    differences: tuple[str, ...]


def verify(since: datetime, until: datetime, *, repair: bool = False) -> Iterator[Checked]:
    """Check each day that has records. With `repair`, rewrite the roll-ups that differ. While a day
    is checked, new usage waits in the journals, but never for the caller."""
    whole_since = kept_since(UsageRecord)
    first = round_up(seconds_of(max(since.astimezone(UTC), whole_since)), DAY_S)
    if since > whole_since:
        first = round_down(seconds_of(since), DAY_S)
    for day_s in range(first, seconds_of(until), DAY_S):
        with transaction.atomic():
            rollups.take_usage_lock()
            # Most days of a small installation have neither records nor roll-ups.
            in_day = (_stored(model, day_s, day_s + DAY_S) for model in LEVELS.values())
            is_used = any(rows.exists() for rows in (_records(day_s, day_s + DAY_S), *in_day))
            nothing = Checked(moment_of(day_s), 0, ())
            checked = _check_day(day_s, repair=repair) if is_used else nothing
        yield checked


def _check_day(day_s: int, *, repair: bool) -> Checked:
    num_rows = 0
    differences: list[str] = []
    of_day: list[tuple[rollups.Unit, rollups.Tally]] = []
    for hour_s in range(day_s, day_s + DAY_S, HOUR_S):
        rows = _records(hour_s, hour_s + HOUR_S).values_list(*rollups.OF_RECORDS, named=True)
        levels = rollups.tallies_of(rows.iterator(chunk_size=_ROWS_IN_MEMORY))
        of_day += levels.pop(DAY_S).items()
        for unit_s, tallies in levels.items():
            differences += _check(unit_s, hour_s, hour_s + HOUR_S, tallies, repair=repair)
        num_rows += sum(int(tally.sums[0]) for tally in levels[MINUTE_S].values())
    of_days = rollups.together(of_day)
    differences += _check(DAY_S, day_s, day_s + DAY_S, of_days, repair=repair)
    return Checked(moment_of(day_s), num_rows, tuple(differences))


def _check(unit_s: int, start_s: int, end_s: int, tallies: Tallies, *, repair: bool) -> list[str]:
    model = LEVELS[unit_s]
    if start_s < seconds_of(kept_since(model)):
        return []
    stored = _stored(model, start_s, end_s)
    found = _differences(_UNIT_NAMES[unit_s], tallies, tallies_in(stored))
    if found and repair:
        stored.delete()
        SpanRollup._default_manager.filter(start_s=round_down(start_s, rollups.SPAN_S)).delete()
        rollups.add_tallies(model, tallies, rollups.ids_of({each for _, each in tallies}))
    return found


def _records(start_s: int, end_s: int) -> QuerySet[UsageRecord]:
    bounds = {"created_at__gte": moment_of(start_s), "created_at__lt": moment_of(end_s)}
    return UsageRecord.objects.filter(**bounds).order_by()


def _stored(model: type[Rollup], start_s: int, end_s: int) -> QuerySet[Rollup]:
    return model._default_manager.filter(start_s__gte=start_s, start_s__lt=end_s).order_by()


def tallies_in(stored: QuerySet[Rollup]) -> Tallies:
    about = [f"slice__{name}" for name in Slice._fields]
    rows: QuerySet[Any, Any] = stored.values_list("start_s", "histograms", *SUMS, *about)
    return {
        (start_s, Slice(*values[len(SUMS) :])): rollups.Tally(values[: len(SUMS)], bytes(encoded))
        for start_s, encoded, *values in rows.iterator(chunk_size=_ROWS_IN_MEMORY)
    }


def _differences(unit: str, in_rows: Tallies, in_rollups: Tallies) -> list[str]:
    nothing = rollups.Tally([0] * len(SUMS), b"")
    return sorted(
        f"{unit} {moment_of(start_s):%Y-%m-%d %H:%M} {_describe(about)}: {column} is {mine} in the "
        f"records and {theirs} in the roll-ups"
        for start_s, about in in_rows.keys() | in_rollups.keys()
        for column, mine, theirs in _unequal(
            in_rows.get((start_s, about), nothing), in_rollups.get((start_s, about), nothing)
        )
    )


def _unequal(in_rows: rollups.Tally, stored: rollups.Tally) -> Iterator[tuple[str, object, object]]:
    for column, mine, theirs in zip(SUMS, in_rows.sums, stored.sums, strict=True):
        # Sums of fractions depend on the order of addition.
        if mine != theirs and not math.isclose(mine, theirs, rel_tol=1e-9, abs_tol=1e-9):
            yield column, mine, theirs
    if in_rows.histograms != stored.histograms:
        counts = [decode(each.histograms) for each in (in_rows, stored)]
        if counts[0] != counts[1]:
            first, second = (f"{sum(each.values())} measured" for each in counts)
            yield "histograms", first, second


def _describe(about: Slice) -> str:
    names = (about.organization_name, about.project_name, about.username, about.key_name)
    words = filter(None, (*names, about.model, about.endpoint, about.outcome))
    return f"{about.dimensions}: {' / '.join(words) or 'no key'}"


# -- Sums of three days: fewer rows, and more combinations of columns. A job writes them from the
# roll-ups of days once a span is over. Reports use a span only while it has as many requests as its
# days, and each stored record adds one request to its day. So after a late record, or one of a
# version that knows no spans, reports read the days until the job has written the span again. What
# changes days without their number of requests deletes all spans.


def write_spans(now: datetime) -> int:
    """Write the newest spans that are over and lack requests. Returns their number."""
    oldest = DayRollup._default_manager.aggregate(at=Min("start_s"))["at"]
    if oldest is None:
        return 0
    first, end = round_down(oldest, SPAN_S), round_down(seconds_of(now), SPAN_S)
    SpanRollup._default_manager.filter(start_s__lt=first).delete()
    spans = range(first, end, SPAN_S)
    of_spans, of_days = _of_spans(spans), _of_days(spans)
    lacking = (at for at, num in of_days.items() if of_spans.get(at) != num)
    missing = sorted(lacking, reverse=True)[:20]
    for start_s in missing:
        _write(start_s)
    return len(missing)


def _write(start_s: int) -> None:
    days = DayRollup._default_manager.filter(start_s__gte=start_s, start_s__lt=start_s + SPAN_S)
    whole = tallies_in(days.filter(slice__dimensions=RollupDimensions.ALL).order_by())
    tallies = rollups.together(
        ((start_s, each.at(dimensions)), tally)
        for (_, each), tally in whole.items()
        for dimensions in ROLLUP_DIMENSIONS[SPAN_S]
    )
    with transaction.atomic():
        SpanRollup._default_manager.filter(start_s=start_s).delete()
        rollups.add_tallies(SpanRollup, tallies, rollups.ids_of({each for _, each in tallies}))


def _of_spans(spans: range) -> dict[int, int]:
    """Return numbers of requests; without the newest dimensions none, so spans are rewritten."""
    return _num_requests(SpanRollup, spans, RollupDimensions.USER_OUTCOME)


def _of_days(spans: range) -> dict[int, int]:
    return _num_requests(DayRollup, spans, RollupDimensions.OUTCOME)


def _num_requests(model: type[Rollup], spans: range, kind: RollupDimensions) -> dict[int, int]:
    rows = model._default_manager.filter(
        start_s__gte=spans.start, start_s__lt=spans.stop, slice__dimensions=kind
    )
    by_span = rows.order_by().values(span=F("start_s") / SPAN_S).annotate(num=Sum("num_requests"))
    return {span * SPAN_S: int(num) for span, num in by_span.values_list("span", "num")}


def in_spans(reading: Reading) -> list[Reading]:
    """Return readings of the same usage: of whole spans in place of their days."""
    if reading.unit_s != DAY_S or not reading.has_one_bin:
        return [reading]

    def has(day_s: int) -> bool:
        return any(day_s in part for part in reading.parts)

    first, last = reading.parts[0][0], reading.parts[-1][-1]
    spans = range(round_down(first, SPAN_S), last + 1, SPAN_S)
    of_spans = _of_spans(spans) if last - first >= SPAN_S - DAY_S else {}
    # Days without usage are not looked for: a year may have many.
    of_days = _of_days(spans) if of_spans else {}
    known, rest = [], []
    for at in sorted(of_days):
        days = range(at, at + SPAN_S, DAY_S)
        if of_spans.get(at) == of_days[at] and all(map(has, days)):
            known.append(range(at, at + SPAN_S, SPAN_S))
        else:
            rest += [range(day, day + DAY_S, DAY_S) for day in days if has(day)]
    if not known:
        return [reading]
    return [replace(reading, parts=tuple(each)) for each in (known, rest) if each]
