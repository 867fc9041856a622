"""Histograms of latencies: the error of a percentile, and the merge of histograms."""

import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tables import table
from vinery_accounts.usage import histogram
from vinery_accounts.usage.histogram import RELATIVE_ERROR, Latency

durations_ms = st.floats(0.05, 1.4e7)
samples = st.lists(st.tuples(st.sampled_from(Latency), st.floats(0, 1e9)), max_size=60)


def encoded(measured: list[tuple[Latency, float]]) -> bytes:
    counts: Counter[int] = Counter()
    for latency, duration_ms in measured:
        counts[histogram.bucket_index_of(latency, duration_ms)] += 1
    return histogram.encode(counts)


@given(st.lists(durations_ms, min_size=1, max_size=300), st.sampled_from(Latency))
def test_percentiles_are_right_up_to_the_error(durations: list[float], latency: Latency) -> None:
    measured = encoded([(latency, each) for each in durations])

    found = histogram.percentiles([(measured, b"")])[0][latency]

    assert found is not None
    assert found.num == len(durations)
    in_order = sorted(durations)
    for percent, result in ((50, found.p50), (95, found.p95), (99, found.p99)):
        exact = in_order[math.ceil(len(in_order) * percent / 100) - 1]
        assert result == pytest.approx(exact, rel=RELATIVE_ERROR + 1e-6)


@given(samples, samples, samples)
def test_merged_histograms_are_equal_to_one_histogram_of_all_samples(
    some: list[tuple[Latency, float]],
    others: list[tuple[Latency, float]],
    more: list[tuple[Latency, float]],
) -> None:
    joined = encoded(some) + encoded(others) + encoded(more)
    together = encoded(some + others + more)

    assert histogram.decode(joined) == histogram.decode(together)
    assert histogram.compact(joined) == together
    # Several at once, and one without another.
    pairs = [(joined, b""), (b"", b""), (joined, encoded(more)), (encoded(some + others), b"")]
    found = histogram.percentiles(pairs)
    assert found[0] == histogram.percentiles([(together, b"")])[0]
    assert found[1] == [None] * len(Latency)
    assert found[2] == found[3]


def test_large_counts_are_kept_and_an_empty_histogram_has_no_percentiles() -> None:
    counts = {7: 10_000_000_000, 1023: 1}
    assert histogram.decode(histogram.encode(counts)) == counts

    measured = encoded([(Latency.TOTAL, 5.0)])
    assert histogram.percentiles([(measured, b"")])[0][Latency.QUEUE] is None


@table("invalid", [0.0, -1.0, math.nan, math.inf, 1e300])
def test_invalid_durations_are_counted_in_the_first_or_last_bucket(invalid: float) -> None:
    bucket = histogram.bucket_index_of(Latency.FIRST_TOKEN, invalid)

    assert bucket in (0, histogram.NUM_BUCKETS - 1)
