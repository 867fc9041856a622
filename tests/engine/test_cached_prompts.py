"""An engine tells gateways what its prefix cache has, and what it has lost."""

import random
from array import array
from collections import OrderedDict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.engine import in_process
from tests.engine.conftest import TINY_CHAT
from vinery_serving.core.prompt_parts import MAX_PARTS, PART_TOKENS, KnownParts, digests
from vinery_serving.engine import pipeline
from vinery_serving.engine.cached_prompts import CachedPrompts
from vinery_serving.engine.prefix_cache import BLOCK

ROOM = 16 * PART_TOKENS


class RealCache:
    """The blocks as GenAI has them: the one found longest ago is overwritten first."""

    def __init__(self) -> None:
        self._blocks: OrderedDict[tuple[int, ...], None] = OrderedDict()

    def use(self, ids: list[int], start: int = 0) -> None:
        for end in range(start + BLOCK, len(ids) + 1, BLOCK):
            self._blocks[tuple(ids[:end])] = None
            self._blocks.move_to_end(tuple(ids[:end]))
            if len(self._blocks) > ROOM // BLOCK:
                self._blocks.popitem(last=False)

    def num_cached(self, ids: list[int]) -> int:
        num = 0
        while num < len(ids) and tuple(ids[: num + BLOCK]) in self._blocks:
            num += BLOCK
        return num


def as_bytes(ids: list[int]) -> bytes:
    return array("i", ids).tobytes()


def a_generation(ids: list[int], tokens: list[int], **values: Any) -> Any:
    submit = SimpleNamespace(prompt_ids=as_bytes(ids), cache_key=None)
    given = {"connection": object(), "is_echoed": False, "num_prefilled": 0, **values}
    return SimpleNamespace(submit=submit, tokens=tokens, **given)


def told(cached: CachedPrompts, *gateways: KnownParts) -> None:
    while any(changes := cached.changes()):
        for each in gateways:
            each.take(*changes)


@given(
    st.lists(
        # A beginning of some parts, one of a few continuations, an answer, a new connection.
        st.tuples(st.integers(0, 6), st.integers(0, 9), st.integers(0, 3), st.booleans()),
        max_size=40,
    )
)
def test_all_gateways_know_what_the_cache_has_after_others_have_overwritten_parts(requests):
    cached, real = CachedPrompts(lambda: ROOM), RealCache()
    gateways, prompts = [KnownParts()], list[list[int]]()
    for num_common, branch, num_answer, connects in requests:
        ids = [*range(num_common * PART_TOKENS), *[-1 - branch] * PART_TOKENS]
        answer = [branch] * (num_answer * PART_TOKENS)
        prompts += [ids, ids + answer]
        real.use(ids)
        cached.note_prompt(a_generation(ids, answer))
        real.use(ids + answer, len(ids))
        cached.note_end(a_generation(ids, answer))
        if connects:
            gateways.append(KnownParts())
            cached.tell_all()
        if num_answer:  # reports may come after several requests
            told(cached, *gateways)
    told(cached, *gateways)
    for gateway in gateways:
        for ids in prompts:
            num_known = gateway.num_known(list(digests(as_bytes(ids), None)))
            assert num_known * PART_TOKENS == real.num_cached(ids) // PART_TOKENS * PART_TOKENS


def test_reports_and_tables_are_bounded_whatever_is_asked():
    cached, gateway = CachedPrompts(lambda: 1 << 40), KnownParts()
    rng = random.Random(1)
    for _ in range(5):
        ids = [rng.randrange(1 << 30) for _ in range(MAX_PARTS // 4 * PART_TOKENS)]
        cached.note_prompt(a_generation(ids, []))
        added, dropped = cached.changes()
        assert len(added) + len(dropped) == 256
        gateway.take(added, dropped)
        told(cached, gateway)
    assert len(cached._parts) == len(gateway._reported) == MAX_PARTS


def test_only_what_was_computed_for_gateways_counts():
    cached, ids = CachedPrompts(lambda: ROOM), list(range(4 * PART_TOKENS))
    cached.note_prompt(a_generation(ids, [], connection=None))
    cached.note_prompt(a_generation(ids, [], is_echoed=True))
    cached.note_end(a_generation(ids, []))
    assert cached.changes() == ((), ())
    cached.note_end(a_generation(ids, [], num_prefilled=2 * PART_TOKENS))
    assert set(cached.changes()[0]) == set(list(digests(as_bytes(ids), None))[:2])


@pytest.mark.live
def test_the_reports_agree_with_genai_in_a_small_cache(tmp_path: Path, monkeypatch) -> None:
    def scheduler(*args: Any) -> Any:
        made = of_pipeline(*args)
        made.num_kv_blocks = 100
        return made

    of_pipeline = pipeline._scheduler
    monkeypatch.setattr(pipeline, "_scheduler", scheduler)
    served = in_process.pipeline_of(TINY_CHAT, tmp_path)
    with in_process.a_loop(served, tmp_path) as loop:
        loop.kind.warm_up()
        assert served.num_cache_tokens == 100 * BLOCK
        loop.kind.greet()
        gateway, rng, num_seen = KnownParts(), random.Random(3), 0
        chats = [in_process.random_ids(seed, 300) for seed in range(12)]
        num_claimed = num_right = num_cached = 0
        for number in range(60):
            chat = rng.choice(chats)
            chat += in_process.random_ids(100 + number, rng.randrange(20, 90))
            loop.until(lambda: loop.kind._cached._noted == [] == list(loop.kind._cached._changes))
            for load in loop.loads[num_seen:]:
                gateway.take(load.added, load.dropped)
            num_seen = len(loop.loads)
            parts = list(digests(as_bytes(chat), None))
            claimed = gateway.num_known(parts) * PART_TOKENS
            (answer,) = loop.finish(loop.submit(chat, max_new_tokens=10))
            chat += answer.tokens
            assert answer.num_cached_tokens is not None
            num_claimed += claimed
            num_right += min(claimed, answer.num_cached_tokens)
            num_cached += answer.num_cached_tokens
        assert num_right >= 0.95 * num_claimed
        assert num_claimed >= 0.8 * num_cached > 0
        assert any(load.dropped for load in loop.loads)
