"""No more tokens are granted to answers than were reserved, and no answer waits for available
tokens."""

import asyncio
from dataclasses import dataclass, field

from hypothesis import example, given
from hypothesis import strategies as st

from vinery_serving.gateway.running.grants import NUM_AHEAD, NUM_EACH, TokenGrants


@dataclass
class Source:
    """A `TokenSource` with `num_tokens`, the first of them granted."""

    num_tokens: int
    num_granted: int
    is_last: bool = False
    requested: list[int] = field(default_factory=list)

    async def extend(self, num_tokens: int) -> None:
        assert not self.is_last
        self.requested.append(num_tokens)
        given_ = min(num_tokens, self.num_tokens - self.num_granted)
        self.num_granted += given_
        self.is_last = given_ < num_tokens


@dataclass
class Answer:
    """An answer in the engine: it generates until its limit, its last grant or its own end."""

    num_wanted: int
    num_granted: int
    num_generated: int = 0
    num_used: int = 0  # that the gateway has read
    is_last: bool = False

    @property
    def has_ended(self) -> bool:
        return self.num_generated == self.num_wanted or (
            self.is_last and self.num_generated >= self.num_granted
        )


class Generation:
    """Answers that are generated in any order, and a gateway that reads them now and then."""

    def __init__(self, source: Source, wanted: list[int]) -> None:
        self.source = source
        self.grants = TokenGrants(source, dict(enumerate(wanted)))
        self.answers = {
            id_: Answer(wanted[id_], num) for id_, num in self.grants.num_granted.items()
        }
        self.open = set(self.answers)
        self.send_grants(self.open if self.grants.is_last else ())

    def send_grants(self, ids: object) -> None:
        assert isinstance(ids, set | list | tuple)
        for id_ in ids:
            self.answers[id_].num_granted = self.grants.num_granted[id_]
            self.answers[id_].is_last = self.grants.is_last

    def write(self, id_: int, num_tokens: int) -> None:
        answer = self.answers[id_]
        if not answer.has_ended:
            may_generate = min(answer.num_granted, answer.num_wanted)
            answer.num_generated = max(
                answer.num_generated, min(answer.num_generated + num_tokens, may_generate)
            )

    def stop(self, id_: int) -> None:
        answer = self.answers[id_]
        answer.num_used = answer.num_wanted = answer.num_generated
        self.open.discard(id_)

    def read(self) -> None:
        for id_ in list(self.open):
            self.answers[id_].num_used = self.answers[id_].num_generated
            if self.answers[id_].has_ended:
                self.open.discard(id_)
        num_in_all = sum(answer.num_used for answer in self.answers.values())
        if self.open and num_in_all >= self.grants.next_check_at:
            used = {id_: self.answers[id_].num_used for id_ in self.open}
            self.send_grants(asyncio.run(self.grants.update(used, num_in_all)))


STEPS = st.lists(
    st.tuples(st.just("write"), st.integers(0), st.integers(1, 300))
    | st.tuples(st.just("stop"), st.integers(0), st.just(0))
    | st.just(("read", 0, 0)),
    max_size=40,
)


@given(st.lists(st.integers(1, 500), min_size=1, max_size=5), st.integers(0, 2000), STEPS)
# An answer that stops by itself after its last grant.
@example([3], 1, [("write", 0, 1), ("read", 0, 0), ("stop", 0, 0)])
def test_answers_generate_no_more_than_granted_and_at_the_end_all_of_it(wanted, num_tokens, steps):
    num_first = min(sum(wanted), (NUM_AHEAD + NUM_EACH) * len(wanted), len(wanted) + num_tokens)
    generation = Generation(Source(len(wanted) + num_tokens, num_first), wanted)
    for what, number, num in steps:
        match what:
            case "write":
                generation.write(number % len(wanted), num)
            case "stop":
                generation.stop(number % len(wanted))
            case "read":
                generation.read()
        num_generated = sum(answer.num_generated for answer in generation.answers.values())
        assert num_generated <= generation.source.num_granted
    for _ in range(500):  # no answer waits forever
        for id_ in generation.open:
            generation.write(id_, 7)
        generation.read()
    assert not generation.open
    cut = [each for each in generation.answers.values() if each.is_last and each.has_ended]
    if cut and len(wanted) == 1:
        assert cut[0].num_generated == min(cut[0].num_wanted, generation.source.num_tokens)


def two_answers(num_tokens: int) -> Generation:
    return Generation(Source(num_tokens, 2 * (NUM_AHEAD + NUM_EACH)), [1000, 1000])


def test_more_is_reserved_ahead_of_need_for_the_answers_that_need_it():
    generation = two_answers(10_000)
    for num_written, requested in ((NUM_EACH - 1, []), (1, [NUM_EACH])):
        generation.write(0, num_written)
        generation.read()
        assert generation.source.requested == requested
    assert generation.grants.num_granted == {0: NUM_AHEAD + 2 * NUM_EACH, 1: NUM_AHEAD + NUM_EACH}


def test_unused_tokens_of_an_answer_go_to_the_others_and_the_last_ones_are_divided():
    generation = two_answers(10_000)
    generation.stop(1)
    generation.write(0, NUM_EACH)
    generation.read()
    assert generation.source.requested == []
    assert generation.grants.num_granted == {0: NUM_AHEAD + 2 * NUM_EACH}

    generation = two_answers(300)
    generation.write(0, NUM_EACH)
    generation.read()
    assert generation.source.is_last
    assert [answer.num_granted for answer in generation.answers.values()] == [150, 150]
    assert all(answer.is_last for answer in generation.answers.values())
