"""The order in which waiting texts are computed."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from vinery_serving.engine.fair_queue import Lane
from vinery_serving.engine.kinds.vectors import WaitingText, WaitingTexts

A, B = (1, 1), (1, 2)


def text(num_tokens: int, lane: Lane = A, owner: object = None) -> WaitingText:
    return WaitingText(owner, 0, lane, np.ones(num_tokens, np.int32))


def waiting(*texts: WaitingText, max_tokens: int = 64) -> WaitingTexts:
    all_texts = WaitingTexts(max_tokens)
    all_texts.add(texts)
    return all_texts


def lengths(batch: list[WaitingText]) -> list[int]:
    return [each.num_tokens for each in batch]


def test_texts_of_a_length_are_computed_together_and_none_waits_for_long() -> None:
    texts = waiting(text(500), *[text(7) for _ in range(3)], max_tokens=1024)
    assert lengths(texts.next_batch()) == [500]
    assert lengths(texts.next_batch()) == [7, 7, 7]
    assert texts.next_batch() == []

    texts = waiting(*[text(500) for _ in range(5)])
    texts.next_batch()
    texts.add([text(4)])
    assert lengths(texts.next_batch()) == [4]

    texts = waiting(text(500), text(500))
    found = []
    for _ in range(4):
        texts.add([text(4)])
        found += lengths(texts.next_batch())
    assert found.count(500) == 2

    texts = waiting(*[text(8) for _ in range(100)], text(8, B))
    assert B in [each.lane for each in texts.next_batch()]

    cancelled, kept = object(), object()
    all_texts = [text(8, owner=owner) for owner in (cancelled, kept, cancelled)]
    texts = waiting(*all_texts)

    texts.drop(each for each in all_texts if each.owner is cancelled)

    assert [each.owner for each in texts.next_batch()] == [kept]
    assert len(texts) == texts.cost(A) == texts.cost() == 0


LENGTHS = st.lists(st.integers(1, 300), max_size=20)


@given(st.lists(st.tuples(LENGTHS, st.integers(0, 3)), max_size=15), st.integers(1, 600))
def test_every_text_is_computed_once(rounds: list[tuple[list[int], int]], max_tokens: int) -> None:
    texts, added, done = WaitingTexts(max_tokens), [], []

    def compute() -> bool:
        batch = texts.next_batch()
        done.extend(batch)
        width = max(lengths(batch), default=0)
        assert len(batch) <= 1 or width * len(batch) <= max_tokens
        assert len({each.size for each in batch}) <= 1
        return bool(batch)

    for arrived, num_batches in rounds:
        new = [text(each, (1, at % 3)) for at, each in enumerate(arrived)]
        added += new
        texts.add(new)
        for _ in range(num_batches):
            compute()
    while compute():
        pass

    assert len(done) == len(added)
    assert set(map(id, done)) == set(map(id, added))
    assert len(texts) == 0


@given(st.lists(st.tuples(LENGTHS, st.integers(1, 3)), max_size=15))
def test_the_shortest_text_waits_for_one_batch(rounds: list[tuple[list[int], int]]) -> None:
    texts, was_passed = WaitingTexts(64), False
    for arrived, num_batches in rounds:
        texts.add([text(each) for each in arrived])
        for _ in range(num_batches):
            smallest = min(texts._sizes, default=0)
            batch = texts.next_batch()
            if not batch:
                break
            is_passed = batch[0].size > smallest
            assert not (is_passed and was_passed)
            was_passed = is_passed
