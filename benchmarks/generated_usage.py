"""A month of made-up usage in a database: rows, and the roll-ups that they add up to.

All is drawn and added up by numpy, so that ten million requests take minutes. The benchmark
has `accounts/usage/verify` compare a day of it with what Vinery itself would have added up.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise
from operator import itemgetter
from typing import Any

import numpy as np
import numpy.typing as npt
from django.db import connection, transaction

from vinery_accounts.models import (
    DayRollup,
    HourRollup,
    MinuteRollup,
    Rollup,
    UsageRecord,
)
from vinery_accounts.usage import histogram
from vinery_accounts.usage.dimensions import RollupDimensions, Slice
from vinery_accounts.usage.entries import Outcome
from vinery_accounts.usage.rollups import ROLLUP_DIMENSIONS, SUMS, ids_of

Integers = npt.NDArray[np.int64]

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
_MINUTES_KEPT_S = 7 * 86_400
_CHUNK = 20_000


@dataclass(frozen=True)
class Requests:
    """Columns, sorted by time."""

    start_s: Integers
    slice_at: Integers  # in the list of slices
    num_prompt_tokens: Integers
    num_cached_tokens: Integers
    num_output_tokens: Integers
    latencies_ms: tuple[npt.NDArray[np.float64], ...]  # in the order of `Latency`


def write_usage(num_requests: int, until: datetime, days: int = 30, *, with_rows: bool) -> None:
    """Fill an empty database, without rows of single requests unless they are wanted."""
    slices, weights = _slices()
    requests = _draw(num_requests, weights, until, days)
    is_error = np.array([Outcome(each.outcome).is_error for each in slices])
    buckets = _buckets(requests)
    for model, unit_s, since_s in (
        (MinuteRollup, 60, int(until.timestamp()) - _MINUTES_KEPT_S),
        (HourRollup, 3600, 0),
        (DayRollup, 86_400, 0),
    ):
        by_dimensions = [
            _rollups(requests, buckets, _slice_ids(slices, dimensions), is_error, unit_s, since_s)
            for dimensions in ROLLUP_DIMENSIONS[unit_s]
        ]
        # In the order of time, as they would have been written.
        _insert(model, _ROLLUP_COLUMNS, heapq.merge(*by_dimensions, key=itemgetter(0)))
    if with_rows:
        _insert(UsageRecord, _ROW_COLUMNS, _rows(requests, slices))
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")


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


def _draw(num: int, weights: npt.NDArray[np.float64], until: datetime, days: int) -> Requests:
    random = np.random.default_rng(2)
    # Twice as much by day as by night.
    first_s = int((until - timedelta(days=days)).timestamp())
    drawn = random.uniform(0, days * 86_400, size=num * 2)
    chance = 2 / 3 + np.sin(drawn * (2 * math.pi / 86_400)) / 3
    start_s = np.sort((first_s + drawn[random.uniform(size=num * 2) < chance][:num]).astype(int))
    num = len(start_s)
    prompt = random.lognormal(6, 1, num).astype(np.int64) + 1
    output = random.lognormal(5, 1, num).astype(np.int64) + 1
    first_token = random.lognormal(5, 0.6, num)
    inter_token = random.lognormal(3, 0.4, num)
    queue = random.lognormal(1, 1.5, num)
    total = first_token + inter_token * output
    return Requests(
        start_s,
        random.choice(len(weights), size=num, p=weights),
        prompt,
        prompt // 2,
        output,
        (first_token, inter_token, total, queue),
    )


def _buckets(requests: Requests) -> Integers:
    """For each request, one row: where its four latencies are counted."""
    columns = []
    for latency, durations_ms in zip(histogram.Latency, requests.latencies_ms, strict=True):
        columns.append([histogram.bucket_index_of(latency, each) for each in durations_ms.tolist()])
    return np.stack(columns, axis=1)


_ROLLUP_COLUMNS = ("start_s", "slice_id", *SUMS, "histograms")


def _rollups(
    requests: Requests,
    buckets: Integers,
    slice_ids: Integers,
    is_error: npt.NDArray[np.bool_],
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

    columns = zip(
        (groups // num_ids * unit_s).tolist(),
        (groups % num_ids).tolist(),
        counts.tolist(),
        total(is_error[slice_at]),
        total(requests.num_prompt_tokens[first:]),
        total(requests.num_cached_tokens[first:]),
        total(requests.num_output_tokens[first:]),
        _histograms(inverse, len(groups), buckets[first:]),
        strict=True,
    )
    for start_s, slice_id, num, num_errors, num_in, num_cached, num_out, histograms in columns:
        weighted = float(num_in + num_out)
        yield (
            start_s,
            slice_id,
            num,
            num_errors,
            num,  # an engine takes all of them
            num_in,
            num_cached,
            0,
            0,
            num_out,
            0,
            *(0, 0, 0),  # media
            weighted,
            0,
            histograms,
        )


def _histograms(group_at: Integers, num_groups: int, buckets: Integers) -> Iterator[bytes]:
    """Yield the encoded histograms of each group. `group_at` and `buckets` have a row for each
    request: its group, and where its latencies are counted."""
    num_buckets = len(histogram.Latency) * histogram.NUM_BUCKETS
    indexes = (group_at[:, None] * num_buckets + buckets).ravel()
    filled, nums = np.unique(indexes, return_counts=True)
    words = ((filled % num_buckets) << 22 | nums).astype("<u4").tobytes()
    ends = np.searchsorted(filled, np.arange(1, num_groups + 1) * num_buckets) * 4
    for begin, end in pairwise([0, *ends.tolist()]):
        yield words[begin:end]


_ROW_COLUMNS = (
    "request_id",
    "client_request_id",
    "created_at",
    "user_id",
    "username",
    "key_id",
    "key_name",
    "project_id",
    "project_name",
    "organization_id",
    "organization_name",
    "model",
    "asked_model",
    "endpoint",
    "dialect",
    "is_streamed",
    "num_prompt_tokens",
    "num_cached_tokens",
    "num_image_tokens",
    "num_audio_tokens",
    "num_output_tokens",
    "num_reasoning_tokens",
    "weighted_tokens",
    "queue_ms",
    "first_token_ms",
    "inter_token_ms",
    "total_ms",
    "num_request_bytes",
    "num_response_bytes",
    "energy_mj",
    "http_status",
    "outcome",
    "finish_reason",
    "error_code",
    "is_exact",
)
_STATUSES = {outcome.value: status for outcome, status in _OUTCOMES}


def _rows(requests: Requests, slices: Sequence[Slice]) -> Iterator[tuple[Any, ...]]:
    first, inter, total, queue = requests.latencies_ms
    adapt = connection.ops.adapt_datetimefield_value
    for at, (start_s, slice_at) in enumerate(
        zip(requests.start_s.tolist(), requests.slice_at.tolist(), strict=True)
    ):
        each = slices[slice_at]
        prompt, output = int(requests.num_prompt_tokens[at]), int(requests.num_output_tokens[at])
        yield (
            f"req-{at:012d}",
            "",
            adapt(datetime.fromtimestamp(start_s, UTC)),
            each.user_id,
            each.username,
            each.key_id,
            each.key_name,
            each.project_id,
            each.project_name,
            each.organization_id,
            each.organization_name,
            each.model,
            each.model,
            each.endpoint,
            "v1",
            True,
            prompt,
            prompt // 2,
            0,
            0,
            output,
            0,
            float(prompt + output),
            float(queue[at]),
            float(first[at]),
            float(inter[at]),
            float(total[at]),
            500,
            4000,
            None,
            _STATUSES[each.outcome],
            each.outcome,
            "stop",
            "",
            True,
        )


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
