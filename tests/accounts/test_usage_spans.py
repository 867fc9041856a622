"""Reports over long periods read spans of three days, as long as these have all requests."""

from datetime import timedelta

import pytest
from usage_builders import NOON, store

from vinery_accounts.models import SpanRollup, UsageRecord
from vinery_accounts.usage.filters import Dimension
from vinery_accounts.usage.reports import Question, groups
from vinery_accounts.usage.upkeep import verify, write_spans

pytestmark = [pytest.mark.django_db, pytest.mark.stores]

SINCE, UNTIL = NOON - timedelta(days=15, hours=12), NOON + timedelta(hours=12)


def requests() -> dict[tuple[object, ...], int]:
    """The requests of each key and model."""
    question = Question(since=SINCE, until=UNTIL, visible=None)
    found = groups(question, [Dimension.KEY, Dimension.MODEL], largest="num_tokens").groups
    return {each.values: each.figures.num_requests for each in found}


def test_a_span_is_read_while_no_request_is_missing_and_is_written_again() -> None:
    for at in range(16):
        started_at = NOON - timedelta(days=at)
        store(f"r{at}", started_at=started_at, key_id=at % 2, model="a")
    assert requests() == {(0, "a"): 8, (1, "a"): 8}

    # The span with NOON is not over.
    assert write_spans(NOON) == 5
    assert write_spans(NOON) == 0
    assert requests() == {(0, "a"): 8, (1, "a"): 8}
    is_of_pairs = SpanRollup._default_manager.filter(slice__dimensions="key_model")
    assert is_of_pairs.update(num_requests=100) > 5
    assert requests()[0, "a"] > 300, "spans are not read"

    # A late record makes a span short.
    store("late", started_at=NOON - timedelta(days=7), key_id=1, model="b")
    assert requests()[1, "b"] == 1
    assert write_spans(NOON) == 1
    assert requests()[1, "b"] == 1


def test_a_span_without_the_newest_dimensions_is_not_read_and_is_written_again() -> None:
    store("r1", started_at=NOON - timedelta(days=7), model="a")
    assert write_spans(NOON) == 1
    spans = SpanRollup._default_manager
    assert spans.filter(slice__dimensions__startswith="user_").delete()[0] == 3

    def found() -> list[int]:
        question = Question(since=SINCE, until=UNTIL, visible=None)
        read = groups(question, [Dimension.USER, Dimension.MODEL]).groups
        return [each.figures.num_requests for each in read]

    assert found() == [1]
    assert write_spans(NOON) == 1
    spans.filter(slice__dimensions="user_model").update(num_requests=7)
    assert found() == [7], "the span is not read"
    store("r2", started_at=NOON - timedelta(days=13), model="a")
    assert found() == [8], "days without a span are not read"


def test_a_repaired_day_leaves_no_span() -> None:
    store("r1", started_at=NOON - timedelta(days=7), model="a")
    write_spans(NOON)
    UsageRecord.objects.update(num_output_tokens=5)

    assert SpanRollup._default_manager.exists()
    assert any(each.differences for each in verify(SINCE, UNTIL, repair=True))
    assert not SpanRollup._default_manager.exists()
