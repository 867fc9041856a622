"""Requests whose engine refuses, pauses or fails, and the text before an answer."""

import asyncio
from dataclasses import replace

import pytest

from tests.fakes.engine import FakeEngine, Gateway, InMemoryEngine, Script
from tests.flow.tiny_chat import (
    HELLO,
    RAW,
    accepted,
    events_of,
    ids_of,
    new_engine,
    prepared_of,
    texts_of,
)
from tests.prompting.builders import a_chat
from vinery_serving.core import events as ev
from vinery_serving.core.errors import InvalidGrammar, Overloaded
from vinery_serving.core.request import Grammar, GrammarKind, RawPrompts, Stopping
from vinery_serving.gateway.running import generate as run_module
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


async def test_silence_yields_empty_batches_for_keep_alive_comments(engine, monkeypatch):
    monkeypatch.setattr(run_module, "SILENCE_S", 0.01)

    async def reason_long(gateway: Gateway) -> None:
        await accepted(gateway)
        await gateway.receive_cancel()

    async with FakeEngine(engine.replicas.path, reason_long):
        await engine.ready()
        batches = run(await prepared_of(engine))
        assert await anext(batches) == [ev.Started(1, num_prompt_tokens=14)]
        assert await anext(batches) == []
        assert await anext(batches) == []
        await batches.aclose()


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
