"""The handling options of a request reach the engine."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from tests.fakes.engine import HELLO, InMemoryEngine
from tests.flow.tiny_chat import RAW, SUBMIT, in_memory, new_engine, prepared_of
from tests.tables import table
from vinery_serving.core.errors import InvalidRequest, UnsupportedParameter
from vinery_serving.core.events import Completed
from vinery_serving.core.request import BeamSearch, GenerationRequest, Handling, RawPrompts
from vinery_serving.gateway.running.generate import run
from vinery_serving.transport.messages import Accepted, TokenOutput


def asking(handling: Handling, n: int = 1) -> GenerationRequest:
    return replace(RAW, n=n, handling=handling)


async def key_of(
    tmp_path: Path, organization: int | None, salt: str | None = None, **options: Any
) -> bytes | None:
    """The cache key of a request of this organisation; None: without keys and organisations."""
    request, engine = asking(Handling(cache_salt=salt)), new_engine(tmp_path, **options)
    lane = {} if organization is None else {"lane": (organization, 1)}
    return (await prepared_of(engine, request, **lane)).submits[0].cache_key


async def test_organisations_share_the_prefix_cache_only_where_an_administrator_lets_them(tmp_path):
    keys = [await key_of(tmp_path, None, salt) for salt in (None, "one", "one", "two")]
    assert keys[0] is None
    assert keys[1] == keys[2] != keys[3]
    assert all(key is None or (len(key) == 32 and b"one" not in key) for key in keys)

    own = [await key_of(tmp_path, 1, salt) for salt in (None, "one", "two")]
    others = [await key_of(tmp_path, 2, salt) for salt in (None, "one", "two")]
    assert len({None, *own, *others}) == 7
    assert own == [await key_of(tmp_path, 1, salt) for salt in (None, "one", "two")]

    for salt in (None, "one"):
        keys = {await key_of(tmp_path, each, salt, share_prefix_cache=True) for each in (0, 1, 2)}
        assert len(keys) == 1
        assert (keys == {None}) == (salt is None)


async def test_samples_wait_with_the_priority_of_their_request_in_the_lane_of_their_key(tmp_path):
    request = asking(Handling(priority=4), n=3)

    prepared = await prepared_of(new_engine(tmp_path), request, lane=(3, 7))

    assert [(each.priority, each.lane) for each in prepared.submits] == [(4, (3, 7))] * 3


@table("prompts, n, param", [(("a",), 7, "n"), (("a",) * 7, 1, "prompt"), (("a",) * 3, 1, None)])
async def test_more_answers_than_the_engine_ever_takes_at_once_are_refused_before_rendering(
    prompts, n, param, tmp_path
):
    engine = new_engine(tmp_path, max_running=2, max_waiting_per_key=4)
    request = replace(asking(Handling(), n), prompt=RawPrompts(prompts))

    if param is None:
        assert len((await prepared_of(engine, request)).submits) == 3
        return
    with pytest.raises(
        InvalidRequest, match=r"asks for 7 answers, .* at most 6 at once"
    ) as refusal:
        await prepared_of(engine, request)

    assert refusal.value.param == param


@table(
    "organization, key, supports_salt, is_shared, num_cached",
    [
        (1, b"k", True, False, 1),
        (1, b"k", False, False, 0),  # the graph takes no salt
        (1, None, True, False, 0),  # a search that a salt would disturb
        (1, None, True, True, 1),
        (1, None, False, True, 1),
        (0, None, True, False, 1),  # no keys, so no organisations
    ],
)
async def test_cached_tokens_are_reported_only_where_no_other_organisation_shares_the_cache(
    organization, key, supports_salt, is_shared, num_cached, tmp_path
):
    submit = structs.replace(SUBMIT, lane=(organization, 1), cache_key=key)
    output = TokenOutput(1, (65,), "stop", queue_s=0.0, num_cached_tokens=1)
    engine = InMemoryEngine([Accepted(1), output])
    engine.hello = structs.replace(HELLO, supports_cache_salt=supports_salt)
    engine.entry = new_engine(tmp_path, share_prefix_cache=is_shared).entry
    prepared = in_memory(engine, submit=submit)

    events = [event async for batch in run(prepared, None) for event in batch]
    assert isinstance(events[-1], Completed)
    assert events[-1].usage.num_cached_tokens == num_cached
    [submitted] = engine.submitted
    assert (submitted.cache_key is None) == (key is None or not supports_salt)


async def test_a_search_that_a_salt_would_disturb_has_none_and_a_salt_of_a_client_is_refused(
    tmp_path,
):
    engine = new_engine(tmp_path)
    request = replace(asking(Handling()), beams=BeamSearch(2, no_repeat_ngram_size=2))
    prepared = await prepared_of(engine, request, lane=(1, 1))
    assert prepared.submits[0].cache_key is None

    salted = asking(Handling(cache_salt="one"))
    with pytest.raises(InvalidRequest, match="Leave one of them out") as refusal:
        await prepared_of(engine, replace(salted, beams=BeamSearch(2, no_repeat_ngram_size=1)))
    assert refusal.value.param == "cache_salt"
    assert (await prepared_of(engine, replace(salted, beams=BeamSearch(2)))).submits[0].cache_key
    # A salt without an effect is refused, too.
    with pytest.raises(UnsupportedParameter, match="enable_prefix_caching off") as refusal:
        await anext(run(in_memory(InMemoryEngine(), salted), None))
    assert refusal.value.param == "cache_salt"
