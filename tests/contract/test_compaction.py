"""Compactions through openai-python."""

from typing import Any

import openai
import pytest

from tests.conftest import Running, until
from tests.system.clients import new_key, openai_of, vinery
from tests.system.ledger import rows
from tests.system.limiting import limit

from .test_background import ended
from .test_conversations import HELLO
from .test_stored_responses import IN_PARIS, WEATHER
from .test_stored_responses import respond as respond_at_length
from .tiny_chat import CAPITAL, CONTEXT, MODEL, PARIS

QUESTION: Any = {"role": "user", "content": CAPITAL}
ANSWER: Any = {"role": "assistant", "content": PARIS}
# Above the threshold, and within the context.
LONG: Any = [
    {"role": "user", "content": "one two three " * 60},
    {"role": "assistant", "content": "four five six " * 180},
    QUESTION,
]
AT_1000: Any = [{"type": "compaction", "compact_threshold": 1000}]
COMPACTED = ["compaction", "message"]


@pytest.fixture
def v1(running: Running) -> openai.OpenAI:
    return openai_of(running)


def respond(client: openai.OpenAI, input: Any = CAPITAL, **fields: Any) -> Any:
    """After a long conversation, the small model may write until its context is full."""
    return respond_at_length(client, input, **{"max_output_tokens": 40, **fields})


def kinds(output: Any) -> list[str]:
    return [each.type for each in output]


def compact(client: openai.OpenAI, **fields: Any) -> Any:
    return client.responses.compact(model=MODEL, **fields)


def as_input(made: Any) -> Any:
    """The client warns of the user's messages in the output, which are OpenAI's as well."""
    return made.to_dict(warnings=False)["output"]


def test_a_window_becomes_its_questions_and_one_item(v1: openai.OpenAI) -> None:
    made = compact(v1, input=[QUESTION, ANSWER, HELLO, ANSWER])

    assert made.object == "response.compaction"
    assert kinds(made.output) == ["message", "message", "compaction"]
    assert [(each.role, each.content[0].text) for each in made.output[:2]] == [
        ("user", CAPITAL),
        ("user", "Hello."),
    ]
    assert made.usage.output_tokens > 0
    for store in (True, False):
        answer = respond(v1, [*as_input(made), QUESTION], store=store)
        bare = respond(v1, [*as_input(made)[:2], QUESTION], store=store)
        assert answer.usage.input_tokens >= bare.usage.input_tokens + made.usage.output_tokens
    again = compact(v1, input=[*as_input(made), QUESTION])
    assert kinds(again.output) == ["message"] * 3 + ["compaction"]


def test_stored_responses_and_conversations_are_compacted(v1: openai.OpenAI) -> None:
    first = respond(v1, [HELLO])
    second = respond(v1, previous_response_id=first.id)
    conversation = v1.conversations.create(items=[HELLO, ANSWER, QUESTION])

    for fields in ({"previous_response_id": second.id}, {"conversation": conversation.id}):
        made = v1.responses.compact(model=MODEL, extra_body=fields)
        texts = [each.content[0].text for each in made.output[:-1]]  # type: ignore[union-attr]
        assert texts == ["Hello.", CAPITAL]
        kept = v1.conversations.create(items=as_input(made))
        assert kinds(v1.conversations.items.list(kept.id, order="asc")) == kinds(made.output)
        assert respond(v1, "Again?", conversation=kept.id).output_text


def test_a_long_prompt_is_compacted_before_the_answer_and_the_chain_goes_on_from_there(
    strict: openai.OpenAI, running: Running
) -> None:
    whole = respond(strict, LONG)
    assert whole.usage.input_tokens > 1000
    raw = strict.responses.with_raw_response.create(
        model=MODEL, input=LONG, instructions="Be brief.", context_management=AT_1000
    )
    first: Any = raw.parse()

    assert (kinds(first.output), first.output_text) == (COMPACTED, PARIS)
    assert strict.responses.retrieve(first.id) == first
    assert first.usage.input_tokens > whole.usage.input_tokens
    id_ = raw.headers["x-request-id"]
    until(lambda: any(each.request_id == id_ for each in rows(running)))
    (row,) = (each for each in rows(running) if each.request_id == id_)
    counted = row.num_prompt_tokens, row.num_output_tokens, row.num_cached_tokens
    details = first.usage.input_tokens_details
    assert counted == (first.usage.input_tokens, first.usage.output_tokens, details.cached_tokens)
    second = respond(strict, "Again?", previous_response_id=first.id, context_management=AT_1000)
    assert kinds(second.output) == ["message"]
    assert second.usage.input_tokens < 1000
    stateless = respond(
        strict, [*LONG, *first.output, {"role": "user", "content": "Again?"}], store=False
    )
    pruned = respond(strict, [*first.output, {"role": "user", "content": "Again?"}], store=False)
    assert stateless.usage.input_tokens == pruned.usage.input_tokens == second.usage.input_tokens


def test_a_stream_has_the_events_of_the_item(strict: openai.OpenAI) -> None:
    with strict.responses.stream(model=MODEL, input=LONG, context_management=AT_1000) as stream:
        events = list(stream)
        response = stream.get_final_response()

    assert [event.type for event in events[:6]] == [
        "response.created",
        "response.in_progress",
        "response.compaction.compacting",
        "response.output_item.added",
        "response.output_item.done",
        "response.output_item.added",
    ]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert events[2].item_id == response.output[0].id  # type: ignore[union-attr]
    assert (kinds(response.output), response.output_text) == (COMPACTED, PARIS)
    assert strict.responses.retrieve(response.id).output[0] == response.output[0]


def test_a_conversation_goes_on_from_its_compaction(strict: openai.OpenAI) -> None:
    made = strict.conversations.create(items=LONG[:2])
    first = respond(strict, CAPITAL, conversation=made.id, context_management=AT_1000)

    assert (kinds(first.output), first.output_text) == (COMPACTED, PARIS)
    second = respond(strict, "Again?", conversation=made.id)
    assert second.usage.input_tokens < 1000
    assert len(strict.conversations.items.list(made.id, limit=50).data) == 7


def test_a_background_response_is_compacted(v1: openai.OpenAI) -> None:
    for fields in ({}, {"previous_response_id": respond(v1, LONG[:2]).id}):
        begun = respond(v1, LONG, background=True, context_management=AT_1000, **fields)
        assert kinds(ended(v1, begun).output) == COMPACTED


def test_an_answer_after_a_summary_of_all_its_tokens_begins_where_tokens_are_counted(
    running: Running,
) -> None:
    vinery(running, "project", "create", "counted")
    counted = openai_of(running, new_key(running, "counted", "--project", "counted"))
    limit(running, "tokens", "month", 100_000, scope=("--project", "counted"))
    until(lambda: counted.models.list().data)
    turns: Any = [HELLO, {"role": "assistant", "content": "four five six " * 250}, QUESTION]

    answer = respond(counted, turns, context_management=AT_1000)

    assert kinds(answer.output) == COMPACTED
    assert answer.usage.output_tokens > 250  # what the summary may have


def test_calls_and_outputs_are_summarized_with_the_question_that_needs_them(
    v1: openai.OpenAI,
) -> None:
    asked = respond(v1, [IN_PARIS], tools=[WEATHER], temperature=0)
    (call,) = [each for each in asked.output if each.type == "function_call"]
    output = {"type": "function_call_output", "call_id": call.call_id, "output": "hot " * 600}

    answer = respond(
        v1,
        [output],
        previous_response_id=asked.id,
        tools=[WEATHER],
        temperature=0,
        context_management=AT_1000,
    )

    assert answer.output[0].type == "compaction"
    assert answer.usage.input_tokens > 1000


def test_what_does_not_fit_is_compacted_or_refused_with_a_sentence(v1: openai.OpenAI) -> None:
    turns = [QUESTION, {"role": "assistant", "content": "four five six " * 300}] * 3

    made = compact(v1, input=[*turns, QUESTION])
    assert kinds(made.output) == ["message"] * 4 + ["compaction"]
    assert made.usage.input_tokens < CONTEXT
    without_threshold: Any = [{"type": "compaction"}]
    answer = respond(v1, [*turns, QUESTION], context_management=without_threshold)
    assert kinds(answer.output) == COMPACTED
    assert kinds(respond(v1, LONG, context_management=without_threshold).output) == ["message"]
    for ask in (compact, lambda v1, input: respond(v1, input, context_management=AT_1000)):
        with pytest.raises(openai.BadRequestError, match="maximum context length") as refused:
            ask(v1, input="word " * 3000)
        assert refused.value.code == "context_length_exceeded"


def test_items_of_other_services_and_projects_are_refused_by_their_index(
    v1: openai.OpenAI, running: Running
) -> None:
    vinery(running, "project", "create", "others")
    theirs = openai_of(running, new_key(running, "of others", "--project", "others"))
    until(lambda: theirs.models.list().data)
    mine = as_input(compact(v1, input=[QUESTION]))[-1]
    foreign: Any = [
        ({"type": "compaction", "encrypted_content": "gAAAAABo"}, "input[1]"),
        ({**mine, "encrypted_content": "A" + mine["encrypted_content"]}, "input[1]"),
        (
            {"type": "reasoning", "summary": [], "encrypted_content": "gAAAAABo"},
            "input[1].encrypted_content",
        ),
    ]
    for client, item, param in [(v1, *each) for each in foreign] + [(theirs, mine, "input[1]")]:
        for ask in (respond, compact):
            with pytest.raises(openai.BadRequestError) as refused:
                ask(client, input=[QUESTION, item, QUESTION])
            assert refused.value.param == param
    with pytest.raises(openai.BadRequestError) as refused:
        theirs.conversations.create(items=[HELLO, mine])
    assert refused.value.param == "items[1]"
    assert respond(v1, [mine, QUESTION]).output_text


def test_a_trigger_asks_for_the_item_alone(strict: openai.OpenAI) -> None:
    """As Codex asks: with a stream that is not stored."""
    asks: Any = {"type": "compaction_trigger"}
    window = [QUESTION, ANSWER, HELLO]
    with strict.responses.create(
        model=MODEL, input=[*window, asks], tools=[WEATHER], store=False, stream=True
    ) as stream:
        events: Any = list(stream)

    assert [each.type for each in events] == [
        "response.created",
        "response.in_progress",
        "response.compaction.compacting",
        "response.output_item.added",
        "response.output_item.done",
        "response.completed",
    ]
    (item,) = events[-1].response.output
    assert events[-1].response.usage.output_tokens > 0
    whole = respond(strict, [QUESTION, HELLO, item.to_dict(), QUESTION], store=False)
    pruned = respond(strict, [item.to_dict(), QUESTION], store=False)
    assert whole.usage.input_tokens == pruned.usage.input_tokens

    first = respond(strict, window)
    made = respond(strict, [asks], previous_response_id=first.id)
    assert (kinds(made.output), made.object) == (["compaction"], "response")
    assert strict.responses.retrieve(made.id) == made
    assert respond(strict, "Again?", previous_response_id=made.id).output_text
    assert len(list(strict.responses.input_items.list(made.id))) == 4
    talk = strict.conversations.create(items=window)
    count = strict.responses.input_tokens.count(model=MODEL, input=[asks], conversation=talk.id)
    assert count.input_tokens > 0
    for input_, param in (([asks, QUESTION], "input[0]"), ([asks], "input[0]")):
        with pytest.raises(openai.BadRequestError) as refused:
            respond(strict, input_)
        assert refused.value.param == param
    with pytest.raises(openai.BadRequestError, match="it is no item") as refused:
        strict.conversations.items.create(talk.id, items=[HELLO, asks])
    assert refused.value.param == "items[1]"


def test_what_makes_no_sense_is_refused(v1: openai.OpenAI) -> None:
    for fields, param in (({"input": [QUESTION], "stream": True}, "stream"), ({}, "input")):
        with pytest.raises(openai.BadRequestError) as refused:
            compact(v1, extra_body=fields)
        assert refused.value.param == param
