"""A request whose engine ends goes on with the next engine, unless the request is at fault."""

import asyncio
from array import array
from dataclasses import replace

import pytest
from msgspec import structs

from tests.fakes.engine import FakeEngine, Gateway, Script
from tests.gateway.running.tiny_chat import (
    HELLO,
    accepted,
    events_of,
    ids_of,
    prepared_of,
    texts_of,
)
from tests.prompting.builders import a_chat
from tests.tables import table
from vinery_serving.core import errors
from vinery_serving.core.events import Completed, Failed, Started
from vinery_serving.core.request import BeamSearch, Grammar, GrammarKind, Sampling
from vinery_serving.gateway.engines import suspects as module
from vinery_serving.gateway.engines.directory import Engine
from vinery_serving.gateway.engines.suspects import Quarantine, Run, Suspects, Work
from vinery_serving.gateway.preparing.prepared import PreparedRequest
from vinery_serving.gateway.running.generate import MAX_LOST_ENGINES, whole
from vinery_serving.transport import messages

TIMEOUT_S = 30
TEXT = "Hi there, how are you?"
END = 2


def known_ids(submit: messages.Submit) -> list[int]:
    return [] if submit.known is None else array("i", submit.known.token_ids).tolist()


async def answer(gateway: Gateway) -> None:
    """Generate the rest of the text."""
    while True:
        submit = await accepted(gateway)
        gateway.tokens(submit, [*ids_of(TEXT)[len(known_ids(submit)) :], END], "stop")


async def die_at_once(gateway: Gateway) -> None:
    await gateway.receive_submit()
    gateway.die()


async def die_after_accepting(gateway: Gateway) -> None:
    await accepted(gateway)
    gateway.die()


async def send_a_token(gateway: Gateway) -> None:
    submit = await accepted(gateway)
    num_known = len(known_ids(submit))
    gateway.tokens(submit, ids_of(TEXT)[num_known : num_known + 1])


async def die_after_a_token(gateway: Gateway) -> None:
    await send_a_token(gateway)
    gateway.die()


def ending(submits: list[messages.Submit]) -> Script:
    """Notes a submission, and ends its answer."""

    async def end(gateway: Gateway) -> None:
        submits.append(submit := await accepted(gateway))
        gateway.tokens(submit, [END], "stop")

    return end


deaths = pytest.mark.parametrize("death", [die_at_once, die_after_accepting, die_after_a_token])
SEEDED = replace(HELLO, sampling=Sampling(temperature=0.9, seed=1))


@deaths
async def test_the_next_engine_goes_on_with_an_answer_that_is_charged_once(engine, death):
    async with FakeEngine(engine.replicas.path, death, answer):
        prepared = await prepared_of(engine)
        events = await events_of(prepared)
    async with FakeEngine(engine.replicas.path, death, answer):
        result = await whole(await prepared_of(engine))

    started = [event for event in events if isinstance(event, Started)]
    assert started == [Started(1, num_prompt_tokens=14)]
    assert "".join(texts_of(events)) == result.choices[0].text == TEXT
    assert isinstance(events[-1], Completed)
    for usage in (events[-1].usage, result.usage):
        assert usage.num_output_tokens == len(ids_of(TEXT)) + 1
    assert prepared.meter.num_continuations == 1


@table(
    "sampling, is_replayed",
    [
        (Sampling(), False),
        (Sampling(temperature=0.0, seed=1), False),
        (Sampling(temperature=0.9, seed=1), True),
        (Sampling(temperature=0.9), False),
    ],
)
async def test_only_samples_with_a_seed_are_generated_again(engine, sampling, is_replayed):
    submits: list[messages.Submit] = []

    async with FakeEngine(engine.replicas.path, die_after_a_token, ending(submits)):
        await whole(await prepared_of(engine, replace(HELLO, sampling=sampling)))

    assert submits[0].known == messages.Known(array("i", ids_of(TEXT)[:1]).tobytes(), is_replayed)


@table("unenforced", ["", "response_format.schema"])
async def test_the_next_engine_takes_the_grammar_that_the_first_one_took(engine, unenforced):
    submits: list[messages.Submit] = []

    async def die(gateway: Gateway) -> None:
        submits.append(submit := await gateway.receive_submit())
        gateway.send(messages.Accepted(submit.id, unenforced))
        gateway.tokens(submit, ids_of(TEXT)[:1])
        gateway.die()

    schema = Grammar(GrammarKind.JSON_SCHEMA, '{"type": "string"}', "response_format.schema")
    async with FakeEngine(engine.replicas.path, die, ending(submits)):
        prepared = await prepared_of(engine, replace(HELLO, grammar=schema))
        await whole(prepared)

    strong, grammar = (each.grammar for each in submits)
    assert grammar == (strong.weaker if unenforced else strong)
    assert prepared.meter.unenforced == unenforced


async def test_a_beam_search_begins_anew(engine):
    submits: list[messages.Submit] = []

    async def accept_all(gateway: Gateway) -> messages.Submit:
        submits.append(submit := await gateway.receive_submit())
        for id_ in submit.ids:
            gateway.send(messages.Accepted(id_))
        return submit

    async def die(gateway: Gateway) -> None:
        await accept_all(gateway)
        gateway.die()

    async def end(gateway: Gateway) -> None:
        for id_ in (await accept_all(gateway)).ids:
            gateway.send(messages.StepOutputs((messages.TokenOutput(id_, (END,), "stop"),)))

    beams = replace(HELLO, beams=BeamSearch(width=4), n=2)
    async with FakeEngine(engine.replicas.path, die, end):
        result = await whole(await prepared_of(engine, beams))

    assert len(result.choices) == 2
    assert [known_ids(each) for each in submits] == [[], []]
    assert submits[0].ids == submits[1].ids


async def test_only_choices_that_have_not_ended_go_on(engine):
    num_known: list[int] = []

    async def end_one(gateway: Gateway) -> None:
        submits = [await gateway.receive_submit(), await gateway.receive_submit()]
        for submit in submits:
            gateway.accept(submit)
        gateway.tokens(submits[0], [*ids_of(TEXT), END], "stop")
        gateway.tokens(submits[1], ids_of(TEXT)[:2])
        gateway.die()

    async def go_on(gateway: Gateway) -> None:
        submit = await gateway.receive_submit()
        num_known.append(len(known_ids(submit)))
        gateway.tokens(submit, [*ids_of(TEXT)[2:], END], "stop")

    async with FakeEngine(engine.replicas.path, end_one, go_on):
        result = await whole(await prepared_of(engine, replace(HELLO, n=2)))

    assert num_known == [2]
    assert [each.text for each in result.choices] == [TEXT, TEXT]


async def test_a_stream_that_cannot_go_on_exactly_or_whose_model_is_gone_ends_with_the_reason(
    engine,
):
    async def refuse(gateway: Gateway) -> None:
        submit = await gateway.receive_submit()
        gateway.send(messages.Rejected(submit.id, "not_continued", "It differs."))

    async def unload(gateway: Gateway) -> None:
        await send_a_token(gateway)
        engine.is_gone = True
        gateway.die()

    async with FakeEngine(engine.replicas.path, die_after_a_token, refuse):
        events = await events_of(await prepared_of(engine, SEEDED))
    async with FakeEngine(engine.replicas.path, unload):
        unloaded = await events_of(await prepared_of(engine))

    assert isinstance(events[-1], Failed)
    assert isinstance(events[-1].error, errors.NotContinued)
    assert "".join(texts_of(events)) == texts_of(events)[0]  # one token, and nothing more
    assert isinstance(unloaded[-1], Failed)
    assert isinstance(unloaded[-1].error, errors.ModelNotReady)


async def test_a_unary_answer_that_cannot_go_on_exactly_begins_anew(engine):
    known: list[list[int]] = []

    async def both(gateway: Gateway) -> list[messages.Submit]:
        submits = [await gateway.receive_submit() for _ in range(2)]
        for submit in submits:
            gateway.accept(submit)
        return submits

    async def refuse(gateway: Gateway) -> None:
        one, other = await both(gateway)
        known.append(known_ids(one))
        gateway.tokens(one, ids_of(TEXT)[1:2])
        gateway.send(messages.Rejected(other.id, "not_continued", "It differs."))
        one, other = await both(gateway)
        known.append(known_ids(one))
        for submit in (one, other):
            gateway.tokens(submit, [*ids_of(TEXT), END], "stop")

    async def die_between(gateway: Gateway) -> None:
        for submit in await both(gateway):
            gateway.tokens(submit, ids_of(TEXT)[:1])
        gateway.die()

    prepared = await prepared_of(engine, replace(SEEDED, n=2))
    async with FakeEngine(engine.replicas.path, die_between, refuse):
        result = await asyncio.wait_for(whole(prepared), TIMEOUT_S)

    assert known == [ids_of(TEXT)[:1], []]
    assert [each.text for each in result.choices] == [TEXT, TEXT]
    assert prepared.meter.tokens.num_output_tokens == 2 * (len(ids_of(TEXT)) + 1)
    assert prepared.meter.num_continuations == 1


# -- Requests at fault --------------------------------------------------------------------------


async def test_a_request_runs_on_two_engines_at_most_if_they_end(engine):
    num_ends = 0

    async def die(gateway: Gateway) -> None:
        nonlocal num_ends
        await send_a_token(gateway)
        gateway.die()
        num_ends += 1

    async with FakeEngine(engine.replicas.path, die):
        events = await events_of(await prepared_of(engine))
        assert num_ends == 2
        with pytest.raises(errors.EngineLost):
            await whole(await prepared_of(engine))

    assert num_ends == 4
    assert isinstance(events[-1], Failed)
    assert isinstance(events[-1].error, errors.EngineLost)
    assert not any(isinstance(event, Completed) for event in events)


async def test_a_request_at_fault_is_refused_until_it_is_released(engine):
    added: list[tuple[str, str, Work]] = []
    engine.quarantine = Quarantine(lambda *each: added.append(each))
    async with FakeEngine(engine.replicas.path, die_at_once, die_at_once, answer):
        with pytest.raises(errors.EngineLost):
            await whole(await prepared_of(engine))
        await whole(await prepared_with(engine, "Another question"))
        with pytest.raises(errors.RequestQuarantined, match=added[0][0]):
            await whole(await prepared_of(engine))
        engine.quarantine.follow([])

        await whole(await prepared_of(engine))

    assert [(model, len(digest)) for digest, model, _ in added] == [("tiny-chat", 32)]


async def test_the_neighbour_of_a_request_that_ends_engines_is_answered(engine):
    """Both run when two engines end. Then the requests take turns, and one request is at fault."""
    added: list[tuple[str, str, Work]] = []
    engine.quarantine = Quarantine(lambda *each: added.append(each))
    fatal, neighbour = await prepared_with(engine, "Fatal"), await prepared_of(engine)

    async def die_with_both(gateway: Gateway) -> None:
        for _ in range(2):
            await accepted(gateway)
        gateway.die()

    async def die_if_fatal(gateway: Gateway) -> None:
        submit = await accepted(gateway)
        if submit.prompt_ids == fatal.submits[0].prompt_ids:
            gateway.die()
        else:
            gateway.tokens(submit, [*ids_of(TEXT), END], "stop")
            await die_if_fatal(gateway)

    async with FakeEngine(engine.replicas.path, die_with_both, die_with_both, die_if_fatal):
        both = asyncio.gather(whole(fatal), whole(neighbour), return_exceptions=True)
        ended, answered = await asyncio.wait_for(both, TIMEOUT_S)

    assert isinstance(ended, errors.EngineLost)
    assert not isinstance(answered, BaseException)
    assert [choice.text for choice in answered.choices] == [TEXT]
    assert neighbour.meter.num_continuations >= 2
    assert len(added) == 1


async def test_the_hash_does_not_depend_on_who_asks_and_on_random_seeds(engine):
    added: list[tuple[str, str, Work]] = []
    quarantine = Quarantine(lambda *each: added.append(each))
    for key_id in (1, 2):
        request = replace(HELLO, sampling=Sampling(temperature=0.5))
        prepared = await prepared_of(engine, request)
        of_key = {"lane": (1, key_id), "request_id": f"r{key_id}", "cache_key": b"%d" % key_id}
        submits = [structs.replace(each, **of_key) for each in prepared.submits]
        quarantine.add("tiny-chat", submits)
    quarantine.add("other", submits)

    digests = [digest for digest, *_ in added]
    assert digests[0] == digests[1] != digests[2]
    assert [work.lane[1] for *_, work in added] == [1, 2, 2]


async def test_planned_ends_count_against_no_request(engine):
    async def leave_after_a_token(gateway: Gateway) -> None:
        await send_a_token(gateway)
        gateway.leave()

    async with FakeEngine(engine.replicas.path, *[leave_after_a_token] * 4, answer):
        result = await whole(await prepared_of(engine))
    assert result.choices[0].text == TEXT


async def test_planned_ends_have_a_limit(engine):
    async def leave_at_once(gateway: Gateway) -> None:
        await gateway.receive_submit()
        gateway.leave()

    async with FakeEngine(engine.replicas.path, leave_at_once):
        prepared = await prepared_of(engine)
        with pytest.raises(errors.EngineLost, match="too often"):
            await whole(prepared)
    assert prepared.meter.num_continuations == MAX_LOST_ENGINES


# -- Changed models -----------------------------------------------------------------------------


async def prepared_with(engine: Engine, text: str) -> PreparedRequest:
    return await prepared_of(engine, replace(HELLO, prompt=a_chat(("user", text))))


# -- Which requests are at fault when engines end


def end_engine(*runs: Run) -> None:
    """The engine of these requests ends, as each request notices."""
    for run in runs:
        run.engine_ended()


async def submit(*runs: Run) -> None:
    for run in runs:
        await run.take_turn()
        run.submitted()


def new_runs(num: int) -> list[Run]:
    suspects = Suspects()
    return [Run(suspects) for _ in range(num)]


async def test_the_only_request_at_two_ends_of_an_engine_is_at_fault(monkeypatch):
    run, first, second = new_runs(3)
    for other in (first, second):
        await submit(run, other)
        end_engine(run, other)
        other.ended()
    assert run.is_at_fault
    assert not (first.is_at_fault or second.is_at_fault)

    # Requests of another engine of the model are no suspects.
    run, neighbour = new_runs(2)
    neighbour.submitted("other")
    for _ in range(2):
        run.submitted("engine")
        end_engine(run)
    assert run.is_at_fault
    assert neighbour.num_ends == 0

    # A request that ran for long is not suspected of the end before.
    monkeypatch.setattr(module, "_INNOCENT_AFTER_S", 0.0)
    (run,) = new_runs(1)
    for _ in range(3):
        await submit(run)
        end_engine(run)
    assert not run.is_at_fault


async def test_several_suspects_go_on_one_after_the_other():
    runs = new_runs(3)
    for _ in range(2):
        await submit(*runs)
        end_engine(*runs)
    assert not any(run.is_at_fault for run in runs)

    await submit(runs[0])
    others = [asyncio.create_task(submit(run)) for run in runs[1:]]
    await asyncio.sleep(0)
    assert not any(run.has_turn for run in runs[1:])
    runs[0].generated()
    await asyncio.sleep(0)
    assert [run.has_turn for run in runs] == [False, True, False]

    end_engine(*runs[:2])
    assert [run.is_at_fault for run in runs] == [False, True, False]
    runs[1].ended()
    await asyncio.gather(*others)
    assert runs[2].has_turn
