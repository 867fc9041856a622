"""Sums of three days, for reports over long periods: fewer rows, and more combinations of columns.

A job writes them from the roll-ups of days once a span is over. Reports use a span only while it
has as many requests as its days, and each stored record adds one request to its day. So after a
late record, or one of a version that knows no spans, reports read the days until the job
has written the span again. What changes days without their number of requests deletes all
spans."""

from dataclasses import replace
from datetime import datetime

from django.db import transaction
from django.db.models import F, Min, Sum

from vinery_accounts.models import DayRollup, Rollup, SpanRollup
from vinery_accounts.usage import rollups
from vinery_accounts.usage.periods import Reading, round_down, seconds_of
from vinery_accounts.usage.rollups import DAY_S, ROLLUP_DIMENSIONS, SPAN_S, RollupDimensions
from vinery_accounts.usage.verify import tallies_in


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
