"""Conversations through openai-python, with strict response validation."""

from collections.abc import Callable
from typing import Any

import httpx
import openai
import pytest

from tests.conftest import Running, until
from tests.system.clients import new_key, openai_of, vinery

from .test_stored_responses import IN_PARIS, WEATHER, respond
from .tiny_chat import CAPITAL, MODEL, PARIS

HELLO: Any = {"type": "message", "role": "user", "content": "Hello."}


def texts(items: Any) -> list[str]:
    return [item.content[0].text for item in items]


def test_a_conversation_is_made_found_changed_and_deleted(v1: openai.OpenAI) -> None:
    made = v1.conversations.create(metadata={"topic": "weather"}, items=[HELLO])

    assert made.id.startswith("conv_")
    assert v1.conversations.retrieve(made.id) == made
    changed = v1.conversations.update(made.id, metadata={"topic": "news"})
    assert changed.metadata == {"topic": "news"}
    assert v1.conversations.retrieve(made.id) == changed
    assert v1.conversations.update(made.id, metadata=None).metadata == {}
    gone = v1.conversations.delete(made.id)
    assert (gone.object, gone.deleted) == ("conversation.deleted", True)
    asks: Any = (
        v1.conversations.retrieve,
        v1.conversations.delete,
        v1.conversations.items.list,
        lambda id_: v1.conversations.update(id_, metadata={}),
        lambda id_: v1.conversations.items.create(id_, items=[HELLO]),
        lambda id_: v1.conversations.items.retrieve("msg_0", conversation_id=id_),
        lambda id_: v1.conversations.items.delete("msg_0", conversation_id=id_),
        lambda id_: respond(v1, conversation=id_),
    )
    for ask in asks:
        with pytest.raises(openai.NotFoundError, match=f"Conversation with id '{made.id}' not"):
            ask(made.id)


def test_items_have_ids_and_pages_in_both_orders(v1: openai.OpenAI) -> None:
    made = v1.conversations.create()
    first = v1.conversations.items.create(
        made.id,
        items=[
            HELLO,
            {"role": "assistant", "content": "Hi."},
            {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c", "output": "Sunny."},
        ],
        include=["reasoning.encrypted_content"],
    )
    more = v1.conversations.items.create(
        made.id, items=[{**HELLO, "content": f"{n}"} for n in "abc"]
    )

    added = [*first.data, *more.data]
    assert [item.type for item in first.data] == [
        "message", "message", "function_call", "function_call_output"
    ]  # fmt: skip
    assert len({item.id for item in added}) == 7
    assert (first.first_id, first.last_id) == (first.data[0].id, first.data[-1].id)
    listed = v1.conversations.items.list(made.id, order="asc", limit=2)
    assert list(listed) == added
    assert list(v1.conversations.items.list(made.id, limit=3)) == added[::-1]
    (last,) = v1.conversations.items.list(made.id, order="asc", after=added[-2].id or "").data
    assert last == added[-1]
    one = added[0].id or ""
    assert v1.conversations.items.retrieve(one, conversation_id=made.id) == added[0]
    assert v1.conversations.items.delete(one, conversation_id=made.id) == made
    assert list(v1.conversations.items.list(made.id, order="asc")) == added[1:]
    with pytest.raises(openai.NotFoundError, match=f"Item with id '{one}' not found"):
        v1.conversations.items.retrieve(one, conversation_id=made.id)
    with pytest.raises(openai.BadRequestError, match="names no object") as refused:
        v1.conversations.items.list(made.id, after=one)
    assert refused.value.param == "after"


def test_a_response_continues_a_conversation_and_adds_to_it(v1: openai.OpenAI) -> None:
    made = v1.conversations.create()
    first = respond(v1, conversation=made.id)
    asked = respond(v1, [IN_PARIS], conversation={"id": made.id}, tools=[WEATHER])
    (call,) = [item for item in asked.output if item.type == "function_call"]
    output = {"type": "function_call_output", "call_id": call.call_id, "output": "Sunny."}
    with v1.responses.stream(
        model=MODEL, input=[output], conversation=made.id, tools=[WEATHER], store=False
    ) as stream:
        last = stream.get_final_response()

    assert first.conversation.id == made.id
    assert last.usage is not None
    assert last.usage.input_tokens > asked.usage.input_tokens > first.usage.input_tokens
    items = list(v1.conversations.items.list(made.id, order="asc"))
    assert texts(items[:2]) == [CAPITAL, PARIS]
    assert {item.id for item in asked.output} < {item.id for item in items}
    assert [item.type for item in items if "call" in item.type] == [
        "function_call", "function_call_output"
    ]  # fmt: skip
    with pytest.raises(openai.NotFoundError):  # `store` was false
        v1.responses.retrieve(last.id)
    with pytest.raises(openai.BadRequestError, match="send `conversation` instead"):
        respond(v1, previous_response_id=first.id)
    with pytest.raises(openai.BadRequestError, match="exclude each other"):
        respond(v1, previous_response_id=first.id, conversation=made.id)


def test_an_item_that_is_there_is_not_added_again(v1: openai.OpenAI) -> None:
    first = respond(v1)
    reference: Any = {"type": "item_reference", "id": first.output[-1].id}
    made = v1.conversations.create(items=[HELLO, reference])
    again = [reference, {"role": "user", "content": "Again?"}]
    respond(v1, again, conversation=made.id, store=False)

    ids = [item.id for item in v1.conversations.items.list(made.id, order="asc", limit=1)]
    assert len(set(ids)) == len(ids) == 4
    v1.responses.delete(first.id)
    assert v1.conversations.items.retrieve(reference["id"], conversation_id=made.id)
    v1.conversations.delete(made.id)
    with pytest.raises(openai.BadRequestError, match="not found"):
        v1.conversations.create(items=[reference])


def test_two_responses_do_not_run_in_one_conversation(v1: openai.OpenAI) -> None:
    made = v1.conversations.create()
    with v1.responses.create(
        model=MODEL, input="Count to 200.", conversation=made.id, stream=True
    ) as stream:
        assert next(iter(stream)).type == "response.created"
        with pytest.raises(openai.BadRequestError, match="currently operating on") as refused:
            respond(v1, conversation=made.id)
        assert (refused.value.code, refused.value.param) == ("conversation_locked", "conversation")
        count = v1.responses.input_tokens.count(model=MODEL, input="And?", conversation=made.id)
        assert count.input_tokens > 0
    # The client has left: nothing is added, and the conversation is free.

    def answered() -> Any:
        try:
            return respond(v1, conversation=made.id)
        except openai.BadRequestError as error:
            assert error.code == "conversation_locked"

    until(answered)
    assert texts(v1.conversations.items.list(made.id, order="asc")) == [CAPITAL, PARIS]


def test_another_project_sees_nothing_and_a_project_without_days_stores_nothing(
    v1: openai.OpenAI, running: Running
) -> None:
    vinery(running, "project", "create", "strangers")
    key = new_key(running, "of strangers", "--project", "strangers")
    theirs = openai_of(running, key)
    until(lambda: theirs.models.list().data)
    response, made = respond(v1), v1.conversations.create(items=[HELLO])
    (mine,) = v1.conversations.items.list(made.id).data
    chat = v1.chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": CAPITAL}], store=True
    )
    asks: list[Callable[[str], Any]] = [
        theirs.responses.retrieve, theirs.responses.delete, theirs.responses.input_items.list,
        theirs.conversations.retrieve, theirs.conversations.delete,
        theirs.conversations.items.list, theirs.chat.completions.retrieve,
        theirs.chat.completions.delete, theirs.chat.completions.messages.list,
        lambda id_: theirs.conversations.update(id_, metadata={}),
        lambda id_: theirs.conversations.items.create(id_, items=[HELLO]),
        lambda id_: theirs.chat.completions.update(id_, metadata={}),
        lambda id_: respond(theirs, conversation=id_),
        lambda id_: respond(theirs, previous_response_id=id_),
        lambda id_: respond(theirs, [{"type": "item_reference", "id": id_}]),
    ]  # fmt: skip
    for ask in asks:
        said = {"resp": set(), "else": set()}  # an id of a response begins so
        for id_ in (response.id, made.id, chat.id, mine.id, "resp_0", "conv_0", "chatcmpl-0"):
            with pytest.raises((openai.NotFoundError, openai.BadRequestError)) as refused:
                ask(id_ or "")
            kind = "resp" if str(id_).startswith("resp_") else "else"
            said[kind].add(refused.value.message.replace(id_ or "", "ID"))
        assert [len(each) for each in said.values()] == [1, 1], said

    vinery(running, "project", "change", "strangers", "--response-days", "0")
    until(lambda: not respond(theirs).store)
    own = theirs.conversations
    for refuse in (own.create, lambda: own.items.create(made.id, items=[HELLO])):
        with pytest.raises(openai.BadRequestError, match="an owner sets its days"):
            refuse()
    assert v1.conversations.items.list(made.id).data == [mine]


def test_a_project_stores_no_more_than_it_may(running: Running) -> None:
    vinery(running, "project", "create", "small")
    vinery(running, "project", "change", "small", "--max-stored-mb", "1")
    small = openai_of(running, new_key(running, "of small", "--project", "small"))
    until(lambda: small.models.list().data)
    made = small.conversations.create(items=[{**HELLO, "content": "word " * 250_000}])
    asks: list[Callable[[], Any]] = [
        lambda: respond(small),
        lambda: respond(small, background=True),
        small.conversations.create,
        lambda: small.chat.completions.create(
            model=MODEL, messages=[{"role": "user", "content": CAPITAL}], store=True
        ),
    ]

    for ask in asks:
        with pytest.raises(openai.RateLimitError, match="may store no more") as refused:
            ask()
        assert refused.value.code == "insufficient_quota"
        assert refused.value.response.headers["x-should-retry"] == "false"
    assert respond(small, store=False).output_text == PARIS
    small.conversations.delete(made.id)
    assert respond(small).store is True


def test_wrong_bodies_and_queries_are_refused_by_name(v1: openai.OpenAI, raw: httpx.Client) -> None:
    made = v1.conversations.create()
    path = f"/v1/conversations/{made.id}"
    for url, body, param in (
        ("/v1/conversations", {"items": [HELLO] * 21}, "items"),
        ("/v1/conversations", {"items": [{"type": "computer_call"}]}, "items[0]"),
        ("/v1/conversations", {"items": [{"role": "user", "content": 5}]}, "items[0].content"),
        ("/v1/conversations", {"metadata": {"a": 1}}, "metadata.a"),
        ("/v1/conversations", {"metadata": {str(n): "" for n in range(17)}}, "metadata"),
        (f"{path}/items", {"items": []}, "items"),
        (f"{path}/items", {}, "items"),
        (f"{path}/items?include[]=all", {"items": [HELLO]}, "include"),
        (path, {}, "metadata"),
    ):
        answer = raw.post(url, json=body)
        assert answer.status_code == 400, (url, body, answer.text)
        assert answer.json()["error"]["param"] == param
    for query in ("limit=0", "limit=101", "limit=x", "order=up", "include[]=all", "include=x"):
        answer = raw.get(f"{path}/items?{query}")
        assert answer.status_code == 400, query
        assert answer.json()["error"]["param"] == query.partition("=")[0].removesuffix("[]")
    answer = raw.get("/v1/conversations")
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
    answer = raw.put(path)
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET, DELETE, POST")


def test_a_large_item_is_read_and_shown_whole(v1: openai.OpenAI) -> None:
    """A worker process reads the body: it is larger than Django would read."""
    long = "word " * 400_000
    made = v1.conversations.create(items=[{**HELLO, "content": long}])

    assert texts(v1.conversations.items.list(made.id)) == [long]
