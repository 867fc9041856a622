"""A month of made-up usage in a database: rows, and their roll-ups.

All is drawn and added up by numpy, so that ten million requests take minutes. The benchmark
has `vinery_accounts/usage/verify` compare a day with Vinery's own sums.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise
from operator import itemgetter
from typing import Any

import numpy as np
import numpy.typing as npt
from django.db import connection, transaction

from vinery_accounts.base.errors import QUOTA_EXCEEDED
from vinery_accounts.models import DayRollup, HourRollup, MinuteRollup, Rollup, UsageRecord
from vinery_accounts.usage import histogram
from vinery_accounts.usage.entries import Outcome
from vinery_accounts.usage.histogram import Latency
from vinery_accounts.usage.rollups import (
    ROLLUP_DIMENSIONS,
    SUMS,
    RollupDimensions,
    Slice,
    causes_of,
    ids_of,
)

Integers = npt.NDArray[np.int64]

_DAY_S = 86_400
_NUM_ORGANIZATIONS, _NUM_PROJECTS, _NUM_USERS, _NUM_KEYS, _NUM_MODELS = 5, 20, 100, 300, 12
_ENDPOINTS = ("chat/completions", "responses", "completions", "embeddings")
_OUTCOMES = (
    (Outcome.OK, 200),
    (Outcome.CLIENT_GONE, 200),
    (Outcome.REJECTED, 429),
    (Outcome.FAILED, 500),
    (Outcome.INTERRUPTED, None),
)
_SHARES = (0.94, 0.02, 0.03, 0.008, 0.002)
_STATUSES = {outcome.value: status for outcome, status in _OUTCOMES}
_CAUSES = ("num_limited", "num_client_errors", "num_server_errors")
_MINUTES_KEPT_S = 7 * 86_400
_CHUNK = 20_000


def write_usage(num_requests: int, until: datetime, days: int = 30, *, with_rows: bool) -> None:
    """Fill an empty database, with rows of single requests only if wanted."""
    slices, weights = _slices()
    requests = _draw(num_requests, weights, until, days, seed=2)
    outcomes = [Outcome(each.outcome) for each in slices]
    causes = np.array([causes_of(each, _STATUSES[each], "") for each in outcomes])
    counted = {
        "num_errors": np.array([each.is_error for each in outcomes]),
        **dict(zip(_CAUSES, causes.T, strict=False)),
    }
    is_whole = np.array([each is Outcome.OK for each in outcomes])
    buckets = _buckets(requests, is_whole[requests.slice_at])
    for model, unit_s, since_s in (
        (MinuteRollup, 60, int(until.timestamp()) - _MINUTES_KEPT_S),
        (HourRollup, 3600, 0),
        (DayRollup, 86_400, 0),
    ):
        by_dimensions = [
            _rollups(requests, buckets, _slice_ids(slices, dimensions), counted, unit_s, since_s)
            for dimensions in ROLLUP_DIMENSIONS[unit_s]
        ]
        # In the order of time, as they would have been written.
        _insert(model, _ROLLUP_COLUMNS, heapq.merge(*by_dimensions, key=itemgetter(0)))
    if with_rows:
        _insert(UsageRecord, tuple(_ROW_DEFAULTS), _rows(requests, slices))
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")


@dataclass(frozen=True)
class Requests:
    """Columns, sorted by time."""

    start_s: Integers
    slice_at: Integers  # in the list of slices
    num_prompt_tokens: Integers
    num_cached_tokens: Integers
    num_output_tokens: Integers
    is_cut: npt.NDArray[np.bool_]  # by a limit
    latencies_ms: tuple[npt.NDArray[np.float64], ...]  # in the order of `Latency`


def _draw(
    num: int, weights: npt.NDArray[np.float64], until: datetime, days: int, seed: int
) -> Requests:
    """Draw about `num` requests, most of them in the afternoon (UTC), half as many at weekends.
    `weights` are the shares of the slices."""
    random = np.random.default_rng(seed)
    first_s = int((until - timedelta(days=days)).timestamp())
    drawn = first_s + random.uniform(0, days * _DAY_S, size=num * 2 + 200)
    by_day = 2 / 3 - np.cos(drawn * (2 * math.pi / _DAY_S) - math.pi / 6) / 3
    is_weekend = np.isin(drawn // _DAY_S % 7, (2, 3))  # day 0 was a Thursday
    chance = by_day * np.where(is_weekend, 0.5, 1.0)
    start_s = np.sort(drawn[random.uniform(size=len(drawn)) < chance][:num].astype(int))
    num = len(start_s)
    prompt = random.lognormal(6, 1, num).astype(np.int64) + 1
    output = random.lognormal(5, 1, num).astype(np.int64) + 1
    first_token = random.lognormal(5, 0.6, num)
    inter_token = random.lognormal(3, 0.4, num)
    total = first_token + inter_token * output
    return Requests(
        start_s,
        random.choice(len(weights), size=num, p=weights),
        prompt,
        prompt // 2,
        output,
        random.uniform(size=num) < 0.01,
        (first_token, inter_token, total, random.lognormal(1, 1.5, num)),
    )


def owners() -> list[Slice]:
    """Return a slice of each key, with the key's owners."""
    return list({each.key_id: each for each in _slices()[0]}.values())


def _slice_ids(slices: Sequence[Slice], dimensions: RollupDimensions) -> Integers:
    """Return the id of the slice with only these dimensions that contains each slice."""
    coarse = [each.at(dimensions) for each in slices]
    ids = ids_of(set(coarse))
    return np.array([ids[each] for each in coarse], dtype=np.int64)


def _slices() -> tuple[list[Slice], npt.NDArray[np.float64]]:
    """Return all slices, and their shares of the requests: keys by Zipf's law."""
    random = np.random.default_rng(1)
    slices, weights = [], []
    for key in range(1, _NUM_KEYS + 1):
        user = key % _NUM_USERS + 1
        project = user % _NUM_PROJECTS + 1
        organization = project % _NUM_ORGANIZATIONS + 1
        models = random.choice(_NUM_MODELS, size=random.integers(1, 4), replace=False)
        endpoints = random.choice(len(_ENDPOINTS), size=random.integers(1, 3), replace=False)
        for model in models:
            for endpoint in endpoints:
                for (outcome, status), share in zip(_OUTCOMES, _SHARES, strict=True):
                    slices.append(
                        Slice(
                            dimensions=RollupDimensions.ALL.value,
                            key_id=key,
                            key_name=f"key {key}",
                            user_id=user,
                            username=f"user{user}",
                            project_id=project,
                            project_name=f"project {project}",
                            organization_id=organization,
                            organization_name=f"organisation {organization}",
                            model=f"model-{model + 1}",
                            endpoint=_ENDPOINTS[endpoint],
                            outcome=outcome.value,
                            status_class=status and status // 100,
                        )
                    )
                    weights.append(share / key / len(models) / len(endpoints))
    return slices, np.array(weights) / sum(weights)


def _buckets(requests: Requests, is_whole: npt.NDArray[np.bool_]) -> Integers:
    """For each request, one row: where its four latencies are counted; -1: nowhere, as the whole
    time of an answer that is not whole."""
    columns = []
    for latency, durations_ms in zip(Latency, requests.latencies_ms, strict=True):
        buckets = [histogram.bucket_index_of(latency, each) for each in durations_ms.tolist()]
        columns.append(np.where(is_whole | (latency is not Latency.TOTAL), buckets, -1))
    return np.stack(columns, axis=1)


_ROLLUP_COLUMNS = ("start_s", "slice_id", *SUMS, "histograms")


def _rollups(
    requests: Requests,
    buckets: Integers,
    slice_ids: Integers,
    counted: Mapping[str, npt.NDArray[np.bool_]],
    unit_s: int,
    since_s: int,
) -> Iterator[tuple[Any, ...]]:
    first = int(np.searchsorted(requests.start_s, since_s))
    units = requests.start_s[first:] // unit_s
    slice_at = requests.slice_at[first:]
    num_ids = int(slice_ids.max()) + 1
    groups, inverse, counts = np.unique(
        units * num_ids + slice_ids[slice_at], return_inverse=True, return_counts=True
    )

    def total(column: npt.NDArray[Any]) -> list[int]:
        sums = np.bincount(inverse, weights=column, minlength=len(groups))
        return sums.astype(np.int64).tolist()  # type: ignore[no-any-return]

    prompt, output = requests.num_prompt_tokens[first:], requests.num_output_tokens[first:]
    summed = {
        "num_requests": counts.tolist(),
        **{name: total(column[slice_at]) for name, column in counted.items()},
        "num_cut_short": total(requests.is_cut[first:]),
        "num_taken": counts.tolist(),  # an engine takes all of them
        "num_prompt_tokens": total(prompt),
        "num_cached_tokens": total(requests.num_cached_tokens[first:]),
        "num_output_tokens": total(output),
        "weighted_tokens": list(map(float, total(prompt + output))),
    }
    yield from zip(
        (groups // num_ids * unit_s).tolist(),
        (groups % num_ids).tolist(),
        *(summed.get(name, [0] * len(groups)) for name in SUMS),
        _histograms(inverse, len(groups), buckets[first:]),
        strict=True,
    )


def _histograms(group_at: Integers, num_groups: int, buckets: Integers) -> Iterator[bytes]:
    """Yield the encoded histograms of each group. `group_at` and `buckets` have a row for each
    request: the group, and the buckets of the latencies (-1: not counted)."""
    num_buckets = len(Latency) * histogram.NUM_BUCKETS
    indexes = (group_at[:, None] * num_buckets + buckets)[buckets >= 0]
    filled, nums = np.unique(indexes, return_counts=True)
    words = ((filled % num_buckets) << 22 | nums).astype("<u4").tobytes()
    ends = np.searchsorted(filled, np.arange(1, num_groups + 1) * num_buckets) * 4
    for begin, end in pairwise([0, *ends.tolist()]):
        yield words[begin:end]


# All columns, so that a new one has its default.
_ROW_DEFAULTS: dict[str, Any] = {
    column.attname: column.get_default()
    for column in UsageRecord._meta.concrete_fields
    if not column.primary_key
}


def _rows(requests: Requests, slices: Sequence[Slice]) -> Iterator[tuple[Any, ...]]:
    first, inter, total, queue = requests.latencies_ms
    adapt = connection.ops.adapt_datetimefield_value
    for at, (start_s, slice_at) in enumerate(
        zip(requests.start_s.tolist(), requests.slice_at.tolist(), strict=True)
    ):
        each = slices[slice_at]
        prompt, output = int(requests.num_prompt_tokens[at]), int(requests.num_output_tokens[at])
        values = {
            **{name: getattr(each, name) for name in _OF_SLICES},
            "request_id": f"req-{at:012d}",
            "created_at": adapt(datetime.fromtimestamp(start_s, UTC)),
            "asked_model": each.model,
            "dialect": "v1",
            "is_streamed": True,
            "num_prompt_tokens": prompt,
            "num_cached_tokens": prompt // 2,
            "num_output_tokens": output,
            "weighted_tokens": float(prompt + output),
            "queue_ms": float(queue[at]),
            "first_token_ms": float(first[at]),
            "inter_token_ms": float(inter[at]),
            "total_ms": float(total[at]),
            "num_request_bytes": 500,
            "num_response_bytes": 4000,
            "http_status": _STATUSES[each.outcome],
            "finish_reason": QUOTA_EXCEEDED if requests.is_cut[at] else "stop",
        }
        yield tuple((_ROW_DEFAULTS | values).values())


# The columns of slices that records have as well.
_OF_SLICES = tuple(name for name in Slice._fields if name in _ROW_DEFAULTS)


def _insert(
    model: type[Rollup] | type[UsageRecord], columns: Sequence[str], rows: Iterator[tuple[Any, ...]]
) -> None:
    table, names = model._meta.db_table, ", ".join(columns)
    with transaction.atomic(), connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            with cursor.copy(f"COPY {table} ({names}) FROM STDIN") as copy:
                for row in rows:
                    copy.write_row(row)
            return
        marks = ", ".join(["%s"] * len(columns))
        while chunk := list(islice(rows, _CHUNK)):
            cursor.executemany(f"INSERT INTO {table} ({names}) VALUES ({marks})", chunk)
