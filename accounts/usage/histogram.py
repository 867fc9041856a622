"""Latencies as counts in buckets, in a form in which joining two is merging them.

Buckets grow by `GROWTH`, so a percentile is wrong by at most `RELATIVE_ERROR` (the scheme of
DDSketch, Masson, Rim and Lee, 2019), from `_SMALLEST_MS` to four hours; what is shorter or
longer counts as these. Encoded, a histogram is a row of 32-bit words, little-endian: two bits
of the latency's name, eight of the bucket, 22 of how many. A bucket may occur in several
words; these add up. So histograms are merged by putting their bytes one behind the other, in
SQL too, and `compact` makes them short again.
"""

from __future__ import annotations

import math
import struct
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt

GROWTH = 1.08
RELATIVE_ERROR = (GROWTH - 1) / (GROWTH + 1)  # 3.85 %
NUM_BUCKETS = 256

_SMALLEST_MS = 0.05
_LOG_GROWTH = math.log(GROWTH)
_COUNT_BITS = 22
_MAX_COUNT = 2**_COUNT_BITS - 1
_WORD = np.dtype("<u4")
WORD_BYTES = _WORD.itemsize


class Latency(IntEnum):
    """Which time was measured."""

    FIRST_TOKEN = 0
    INTER_TOKEN = 1
    TOTAL = 2
    QUEUE = 3


# How many requests fell in each place, which is a latency and its bucket.
BucketCounts = Counter[int]
Counts = npt.NDArray[np.int64]  # of all places: len(Latency) rows, NUM_BUCKETS columns


@dataclass(frozen=True, slots=True)
class Percentiles:
    """In milliseconds, of `num` measured requests."""

    num: int
    p50: float
    p95: float
    p99: float


def bucket_index_of(latency: Latency, duration_ms: float) -> int:
    """Where a duration is counted. Bucket b holds those in (S*G**(b-1), S*G**b]."""
    if not duration_ms > _SMALLEST_MS:  # NaN too
        bucket = 0
    else:
        steps = math.log(min(duration_ms, 1e12) / _SMALLEST_MS) / _LOG_GROWTH
        bucket = min(math.ceil(steps - 1e-9), NUM_BUCKETS - 1)
    return latency * NUM_BUCKETS + bucket


def bucket_indexes_of(
    latency: Latency, durations_ms: npt.NDArray[np.float64]
) -> npt.NDArray[np.int64]:
    """The same as `bucket_index_of` for many at once."""
    ratios = np.clip(durations_ms, _SMALLEST_MS, 1e12) / _SMALLEST_MS
    buckets = np.ceil(np.log(ratios) / _LOG_GROWTH - 1e-9).astype(np.int64)
    return latency * NUM_BUCKETS + np.clip(buckets, 0, NUM_BUCKETS - 1)


def encode(places: Mapping[int, int]) -> bytes:
    """The bytes of these counts, the same for the same counts."""
    words = []
    for place, count in sorted(places.items()):
        full, rest = divmod(count, _MAX_COUNT)
        words += [place << _COUNT_BITS | _MAX_COUNT] * full
        if rest:
            words.append(place << _COUNT_BITS | rest)
    return struct.pack(f"<{len(words)}I", *words)


def decode(*encoded: bytes) -> BucketCounts:
    """The counts of several histograms together."""
    places: BucketCounts = Counter()
    for word in np.frombuffer(b"".join(encoded), dtype=_WORD).tolist():
        places[word >> _COUNT_BITS] += word & _MAX_COUNT
    return places


def compact(encoded: bytes) -> bytes:
    """The same counts, each place once."""
    return encode(decode(encoded))


def words_of(encoded: Iterable[bytes]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Of each word of many histograms, one behind the other: its place and its count."""
    words = np.frombuffer(b"".join(encoded), dtype=_WORD).astype(np.int64)
    return words >> _COUNT_BITS, words & _MAX_COUNT


def counts_of(encoded: Iterable[bytes]) -> Counts:
    """The same as `decode`, dense and quick, for millions of words."""
    words = np.frombuffer(b"".join(encoded), dtype=_WORD)
    num_places = len(Latency) * NUM_BUCKETS
    # Sums of doubles are exact up to 2**53.
    sums = np.bincount(words >> _COUNT_BITS, weights=words & _MAX_COUNT, minlength=num_places)
    return sums.astype(np.int64).reshape(len(Latency), NUM_BUCKETS)


def percentiles(counts: Counts, latency: Latency) -> Percentiles | None:
    """None when nothing was measured.

    The p-th percentile is the smallest duration that at least p % are not above (nearest
    rank), up to `RELATIVE_ERROR`.
    """
    cumulated = counts[latency].cumsum()
    num = int(cumulated[-1])
    if not num:
        return None
    ranks = [max(1, -(-num * percent // 100)) for percent in (50, 95, 99)]
    p50, p95, p99 = (_MIDDLES_MS[at] for at in cumulated.searchsorted(ranks).tolist())
    return Percentiles(num, p50, p95, p99)


def _middle_ms(bucket: int) -> float:
    """What is equally far, in relation, from both ends of the bucket."""
    if bucket == 0:
        return _SMALLEST_MS
    return 2 * _SMALLEST_MS * GROWTH**bucket / (1 + GROWTH)


_MIDDLES_MS = [_middle_ms(bucket) for bucket in range(NUM_BUCKETS)]
