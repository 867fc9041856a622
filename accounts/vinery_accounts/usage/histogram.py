"""Histograms of latencies that are merged by concatenating their bytes.

Buckets grow by `GROWTH`, so a percentile is wrong by at most `RELATIVE_ERROR` (the scheme of
DDSketch; Masson, Rim and Lee, 2019) between `_SMALLEST_MS` and four hours. Shorter and longer
durations count as these bounds. An encoded histogram is a sequence of 32-bit little-endian
words: two bits for the latency, eight for the bucket, 22 for the count. Several words of one
bucket add up, so SQL merges histograms by concatenation, and `compact` shortens the result."""

import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import chain

GROWTH = 1.08
RELATIVE_ERROR = (GROWTH - 1) / (GROWTH + 1)  # 3.85 %
NUM_BUCKETS = 256

_SMALLEST_MS = 0.05
_LOG_GROWTH = math.log(GROWTH)
_COUNT_BITS = 22
_MAX_COUNT = 2**_COUNT_BITS - 1


class Latency(IntEnum):
    """A measured time. The value is stored in encoded histograms."""

    FIRST_TOKEN = 0
    INTER_TOKEN = 1
    TOTAL = 2
    QUEUE = 3


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Percentiles in milliseconds of `num` measured requests."""

    num: int
    p50: float
    p95: float
    p99: float


def bucket_index_of(latency: Latency, duration_ms: float) -> int:
    """Return the bucket index of a duration: latency * NUM_BUCKETS + bucket. Bucket b counts
    durations in (S * G**(b - 1), S * G**b], with S = `_SMALLEST_MS` and G = `GROWTH`."""
    if not duration_ms > _SMALLEST_MS:  # NaN too
        bucket = 0
    else:
        steps = math.log(min(duration_ms, 1e12) / _SMALLEST_MS) / _LOG_GROWTH
        bucket = min(math.ceil(steps - 1e-9), NUM_BUCKETS - 1)
    return latency * NUM_BUCKETS + bucket


def encode(counts: Mapping[int, int]) -> bytes:
    words = []
    for index, count in sorted(counts.items()):
        while count > _MAX_COUNT:
            words.append(index << _COUNT_BITS | _MAX_COUNT)
            count -= _MAX_COUNT
        words.append(index << _COUNT_BITS | count)
    return struct.pack(f"<{len(words)}I", *words)


def decode(encoded: bytes) -> dict[int, int]:
    counts: dict[int, int] = {}
    for [word] in struct.iter_unpack("<I", encoded):
        index = word >> _COUNT_BITS
        counts[index] = counts.get(index, 0) + (word & _MAX_COUNT)
    return {index: count for index, count in sorted(counts.items()) if count}


def compact(encoded: bytes) -> bytes:
    return encode(decode(encoded))


def percentiles(pairs: Sequence[tuple[bytes, bytes]]) -> list[list[Percentiles | None]]:
    """Return the percentiles of each latency for several encoded histograms, each without another
    one; None if nothing was measured. The p-th percentile is the smallest duration that at least
    p % of the requests do not exceed (nearest rank), within `RELATIVE_ERROR`. All at once: a chart
    has hundreds of points."""
    # Only reports need numpy: 25 MB of a process, and 50 ms of its start.
    import numpy as np

    parts = list(chain.from_iterable(pairs))
    words = np.frombuffer(b"".join(parts), dtype="<u4")
    at = np.repeat(np.arange(len(parts)), [len(each) // 4 for each in parts])
    indexes = at // 2 * (len(Latency) * NUM_BUCKETS) + (words >> _COUNT_BITS)
    signed = np.where(at % 2, -1.0, 1.0) * (words & _MAX_COUNT)
    # Sums of doubles are exact up to 2**53.
    sums = np.bincount(indexes, signed, len(pairs) * len(Latency) * NUM_BUCKETS)
    cumulated = sums.astype(np.int64).reshape(len(pairs), len(Latency), NUM_BUCKETS).cumsum(axis=2)
    nums = cumulated[:, :, -1]
    ranks = np.maximum(1, -(-nums[:, :, None] * np.array([50, 95, 99]) // 100))
    places = (cumulated[:, :, None, :] < ranks[:, :, :, None]).sum(axis=3)
    return [
        [
            Percentiles(num, *(_MIDDLES_MS[each] for each in row)) if num else None
            for num, row in zip(*of_pair, strict=True)
        ]
        for of_pair in zip(nums.tolist(), places.tolist(), strict=True)
    ]


# The duration with the same relative distance to both ends of each bucket.
_MIDDLES_MS = [
    _SMALLEST_MS,
    *(2 * _SMALLEST_MS * GROWTH**bucket / (1 + GROWTH) for bucket in range(1, NUM_BUCKETS)),
]
