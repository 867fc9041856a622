"""However answers are written, no more is shared out than was granted, and nobody waits for
tokens that can be had."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from serving.flow.grants import NUM_AHEAD, NUM_EACH, TokenGrants


@dataclass
class Purse:
    """An allowance that has so many tokens, and the first of them granted."""

    num_tokens: int
    num_granted: int
    is_last: bool = False
    asked: list[int] = field(default_factory=list)

    async def extend(self, num_tokens: int) -> None:
        assert not self.is_last
        self.asked.append(num_tokens)
        given_ = min(num_tokens, self.num_tokens - self.num_granted)
        self.num_granted += given_
        self.is_last = given_ < num_tokens


@dataclass
class Answer:
    """As the engine sees it: it writes until its limit, its last grant or an end of its own."""

    num_wanted: int
    num_granted: int
    num_made: int = 0
    num_used: int = 0  # that the gateway has read
    is_last: bool = False

    @property
    def has_ended(self) -> bool:
        return self.num_made == self.num_wanted or (
            self.is_last and self.num_made >= self.num_granted
        )


class Writing:
    """Answers that are written in any order, and a gateway that reads them now and then."""

    def __init__(self, purse: Purse, wanted: list[int]) -> None:
        self.purse = purse
        self.grants = TokenGrants(purse, dict(enumerate(wanted)))
        self.answers = {
            id_: Answer(wanted[id_], num) for id_, num in self.grants.num_granted.items()
        }
        self.open = set(self.answers)
        self.tell(self.open if self.grants.is_last else ())

    def tell(self, ids: object) -> None:
        assert isinstance(ids, set | list | tuple)
        for id_ in ids:
            self.answers[id_].num_granted = self.grants.num_granted[id_]
            self.answers[id_].is_last = self.grants.is_last

    def write(self, id_: int, num_tokens: int) -> None:
        answer = self.answers[id_]
        if not answer.has_ended:
            may_make = min(answer.num_granted, answer.num_wanted)
            answer.num_made = max(answer.num_made, min(answer.num_made + num_tokens, may_make))

    def stop(self, id_: int) -> None:
        answer = self.answers[id_]
        answer.num_used = answer.num_wanted = answer.num_made
        self.open.discard(id_)

    def read(self) -> None:
        for id_ in list(self.open):
            self.answers[id_].num_used = self.answers[id_].num_made
            if self.answers[id_].has_ended:
                self.open.discard(id_)
        num_in_all = sum(answer.num_used for answer in self.answers.values())
        if self.open and num_in_all >= self.grants.next_check_at:
            used = {id_: self.answers[id_].num_used for id_ in self.open}
            self.tell(asyncio.run(self.grants.update(used, num_in_all)))


STEPS = st.lists(
    st.tuples(st.just("write"), st.integers(0), st.integers(1, 300))
    | st.tuples(st.just("stop"), st.integers(0), st.just(0))
    | st.just(("read", 0, 0)),
    max_size=40,
)


@given(st.lists(st.integers(1, 500), min_size=1, max_size=5), st.integers(0, 2000), STEPS)
def test_never_is_more_made_than_granted_and_at_the_end_all_that_could_be(
    wanted: list[int], num_tokens: int, steps: list[tuple[str, int, int]]
) -> None:
    num_first = min(sum(wanted), (NUM_AHEAD + NUM_EACH) * len(wanted), len(wanted) + num_tokens)
    writing = Writing(Purse(len(wanted) + num_tokens, num_first), wanted)
    for what, number, num in steps:
        match what:
            case "write":
                writing.write(number % len(wanted), num)
            case "stop":
                writing.stop(number % len(wanted))
            case "read":
                writing.read()
        made = sum(answer.num_made for answer in writing.answers.values())
        assert made <= writing.purse.num_granted
    for _ in range(500):  # nobody is left waiting for ever
        for id_ in writing.open:
            writing.write(id_, 7)
        writing.read()
    assert not writing.open
    cut = [each for each in writing.answers.values() if each.is_last and each.has_ended]
    if cut and len(wanted) == 1:
        assert cut[0].num_made == min(wanted[0], writing.purse.num_tokens)


def test_more_is_asked_for_ahead_of_need_and_only_for_who_needs_it() -> None:
    purse = Purse(10_000, 2 * (NUM_AHEAD + NUM_EACH))
    writing = Writing(purse, [1000, 1000])
    writing.write(0, NUM_EACH - 1)
    writing.read()
    assert purse.asked == []
    writing.write(0, 1)
    writing.read()
    assert purse.asked == [NUM_EACH]
    assert writing.grants.num_granted == {0: NUM_AHEAD + 2 * NUM_EACH, 1: NUM_AHEAD + NUM_EACH}


def test_what_an_answer_leaves_is_for_the_others() -> None:
    purse = Purse(10_000, 2 * (NUM_AHEAD + NUM_EACH))
    writing = Writing(purse, [1000, 1000])
    writing.stop(1)
    writing.write(0, NUM_EACH)
    writing.read()
    assert purse.asked == []
    assert writing.grants.num_granted == {0: NUM_AHEAD + 2 * NUM_EACH}


def test_the_last_tokens_are_divided_and_everybody_is_told_that_they_are_the_last() -> None:
    purse = Purse(300, 2 * (NUM_AHEAD + NUM_EACH))
    writing = Writing(purse, [1000, 1000])
    writing.write(0, NUM_EACH)
    writing.read()
    assert purse.is_last
    assert [answer.num_granted for answer in writing.answers.values()] == [150, 150]
    assert all(answer.is_last for answer in writing.answers.values())
