"""Requests whose engine refuses, pauses or fails, the text before an answer, and the handling of a
request."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from tests.fakes.engine import HELLO as GREETING
from tests.fakes.engine import FakeEngine, Gateway, InMemoryEngine, Script
from tests.gateway.running.tiny_chat import (
    HELLO,
    RAW,
    SUBMIT,
    accepted,
    events_of,
    ids_of,
    in_memory,
    new_engine,
    prepared_of,
    texts_of,
)
from tests.prompting.builders import a_chat
from tests.tables import table
from vinery_serving.core import events as ev
from vinery_serving.core.errors import (
    InvalidGrammar,
    InvalidRequest,
    Overloaded,
    UnsupportedParameter,
)
from vinery_serving.core.events import Completed
from vinery_serving.core.request import (
    BeamSearch,
    GenerationRequest,
    Grammar,
    GrammarKind,
    Handling,
    RawPrompts,
    Stopping,
)
from vinery_serving.gateway.running.generate import run, whole
from vinery_serving.transport.messages import Accepted, Rejected, TokenOutput

TIMEOUT_S = 30


async def answer(gateway: Gateway) -> None:
    while True:
        submit = await accepted(gateway)
        gateway.tokens(submit, ids_of("Hi there"))
        gateway.tokens(submit, [2], "stop")


async def test_the_events_of_an_answer_and_progress_before_the_deltas_that_it_counts(engine):
    async with FakeEngine(engine.replicas.path, answer):
        events = await events_of(await prepared_of(engine))
        counted = await events_of(await prepared_of(engine, replace(HELLO, wants_progress=True)))
    assert events[0] == ev.Started(1, num_prompt_tokens=14)
    assert "".join(texts_of(events)) == "Hi there"
    assert events[-2] == ev.Finished(0, ev.FinishReason.STOP)
    assert isinstance(events[-1], ev.Completed)
    assert events[-1].usage.num_output_tokens == len(ids_of("Hi there")) + 1
    counts = [event.usage.num_output_tokens for event in counted if isinstance(event, ev.Progress)]
    assert counts == sorted(counts)
    assert isinstance(counted[1], ev.Progress)


@pytest.mark.parametrize(
    ("code", "wanted", "kind", "param"),
    [
        ("overloaded", None, Overloaded, None),
        ("invalid_grammar", None, InvalidGrammar, "tools"),
        ("invalid_grammar", "guided_regex", InvalidGrammar, "guided_regex"),
    ],
)
async def test_a_refusal_has_its_own_status_and_the_name_of_its_field(
    engine, code, wanted, kind, param
):
    async def refuse(gateway: Gateway) -> None:
        gateway.send(Rejected((await gateway.receive_submit()).id, code, "because", 7))

    grammar = Grammar(GrammarKind.REGEX, "a", wanted) if wanted else None
    async with FakeEngine(engine.replicas.path, refuse):
        with pytest.raises(kind, match="because") as caught:
            await events_of(await prepared_of(engine, replace(HELLO, grammar=grammar)))

    assert (caught.value.param, caught.value.retry_after_s) == (param, 7)


async def test_a_refusal_after_some_text_is_an_event_of_the_stream(engine):
    async def expire(gateway: Gateway) -> None:
        submit = await accepted(gateway)
        gateway.tokens(submit, ids_of("Hi there"))
        gateway.send(Rejected(submit.id, "deadline_exceeded", "too long"))
        await gateway.receive_submit()

    async with FakeEngine(engine.replicas.path, expire):
        events = await events_of(await prepared_of(engine))

    assert any(isinstance(event, ev.TextDelta) for event in events)
    assert isinstance(events[-1], ev.Failed)
    assert events[-1].error.code == "deadline_exceeded"


def rambling(cancelled: asyncio.Event) -> Script:
    async def ramble(gateway: Gateway) -> None:
        submit = await accepted(gateway)
        gateway.tokens(submit, ids_of("one two three four"))
        gateway.tokens(submit, ids_of("five six seven"))
        assert (await gateway.receive_cancel()).id == submit.id
        cancelled.set()

    return ramble


async def test_a_stop_string_or_a_disconnect_frees_the_engine(engine):
    cancelled = asyncio.Event()
    request = replace(HELLO, stopping=Stopping(stop=(" three",)))
    async with FakeEngine(engine.replicas.path, rambling(cancelled)):
        result = await whole(await prepared_of(engine, request))
        await asyncio.wait_for(cancelled.wait(), TIMEOUT_S)
    assert result.choices[0].text == "one two"
    assert result.choices[0].finish_reason is ev.FinishReason.STOP

    cancelled.clear()
    async with FakeEngine(engine.replicas.path, rambling(cancelled)):
        events = run(await prepared_of(engine))
        await anext(events)
        await events.aclose()
        await asyncio.wait_for(cancelled.wait(), TIMEOUT_S)


# The text before an answer


async def test_an_echo_comes_first_streamed_or_not_in_a_chat_of_the_assistants_last_message(engine):
    request = replace(RAW, prompt=RawPrompts(("Once", (2,)), echo=True))
    async with FakeEngine(engine.replicas.path, answer):
        events = await events_of(await prepared_of(engine, request))
        result = await whole(await prepared_of(engine, request))
        for role, text in (("assistant", "SoHi there"), ("user", "Hi there")):
            prompt = a_chat(("user", "Hello!"), (role, "So"), echo=True)
            chat = await whole(await prepared_of(engine, replace(HELLO, prompt=prompt)))
            assert chat.choices[0].text == text

    assert events[0] == ev.Started(2, num_prompt_tokens=2)
    assert events[1:3] == [ev.TextDelta(0, "Once"), ev.TextDelta(1, "<|im_end|>")]
    assert [choice.text for choice in result.choices] == ["OnceHi there", "<|im_end|>Hi there"]


async def test_an_answer_that_is_only_the_echo_needs_no_engine(engine):
    once, stopping = RawPrompts(("Once",), echo=True), Stopping(max_tokens=0)
    prepared = await prepared_of(engine, replace(RAW, prompt=once, n=2, stopping=stopping))

    events = await events_of(prepared)
    result = await whole(prepared)

    assert [choice.text for choice in result.choices] == ["Once", "Once"]
    assert {choice.finish_reason for choice in result.choices} == {ev.FinishReason.LENGTH}
    assert result.usage == ev.TokenCounts(num_prompt_tokens=len(ids_of("Once")))
    assert texts_of(events) == ["Once", "Once"]


async def test_hidden_reasoning_yields_empty_batches_only_after_a_while(tmp_path):
    engine = new_engine(tmp_path)
    prepared = await prepared_of(engine, replace(HELLO, hides_reasoning=True))
    # Each token of the reasoning comes alone, however busy the machine is.
    reasoning = [[TokenOutput(1, (id_,))] for id_ in ids_of("<think>one two three")]
    answered = TokenOutput(1, (*ids_of("</think>Yes"), 2), "stop")
    scripted = InMemoryEngine([Accepted(1)], *reasoning, [answered])
    engine.ready, engine.replicas = scripted.ready, scripted

    batches = [batch async for batch in run(prepared)]
    assert [] not in batches
    events = [event for batch in batches for event in batch]
    assert texts_of(events) == ["Yes"]
    assert isinstance(events[-1], ev.Completed)
    assert events[-1].usage.num_reasoning_tokens > 3


# -- The handling options of a request reach the engine


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
    engine.hello = structs.replace(GREETING, supports_cache_salt=supports_salt)
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
