"""Chains, branches, conversations and deletions, against a model in memory; ids of other tenants;
and the lock of a conversation."""

import sqlite3
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from random import Random
from typing import Any

import pytest
from django.db import connection
from django.db.models import Q, Sum
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.django import TestCase as HypothesisTestCase
from stored_builders import Owner, set_clock, store_chat, store_response

from tests.examples import examples
from vinery_accounts.models import (
    Conversation,
    ConversationItem,
    ResponseItem,
    StoredChat,
    StoredItem,
    StoredResponse,
)
from vinery_accounts.stored import chats, conversations, responses, rows
from vinery_accounts.stored.rows import Item, NotStored

pytestmark = pytest.mark.stores

OWNER = Owner(1, 2)
OTHERS = Owner(9)
NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
Pages = Callable[..., tuple[list[Item], bool]]


def item(id_: str) -> Item:
    return Item(id_, "message", b'{"id":"%s"}' % id_.encode())


def keep(id_: str, inputs: Iterable[Item], outputs: Iterable[Item], **more: Any) -> None:
    of_both = {"inputs": tuple(inputs), "outputs": tuple(outputs)}
    store_response(id_, more.pop("owner", OWNER), payload=b"{}", **of_both, **more)


def all_pages(pages: Pages, limit: int, *, is_descending: bool) -> list[str]:
    found: list[str] = []
    while True:
        after = found[-1] if found else None
        items, has_more = pages(after=after, limit=limit, is_descending=is_descending)
        assert len(items) <= limit
        found += [each.public_id for each in items]
        if not has_more:
            return found


def is_gone(ask: Callable[..., Any], *named: Any) -> bool:
    try:
        ask(*named)
    except NotStored:
        return True
    return False


@dataclass
class Told:
    """A response of the model: the ids of what came before it by `previous`, and its own items."""

    previous: str | None
    inputs: list[str]
    outputs: list[str]
    is_deleted: bool = False


@dataclass
class Model:
    """What should be stored, and the same done to the database."""

    told: dict[str, Told] = field(default_factory=dict)
    talks: dict[str, list[str]] = field(default_factory=dict)
    num: int = 0

    def new(self, prefix: str) -> str:
        self.num += 1
        return f"{prefix}_{self.num}"

    def new_items(self, num: int) -> list[str]:
        return [self.new("msg") for _ in range(num)]

    @property
    def alive(self) -> list[str]:
        return [id_ for id_, each in self.told.items() if not each.is_deleted]

    @property
    def visible(self) -> list[str]:
        """The items that a reference may name."""
        of_responses = [i for id_ in self.alive for i in self.own(id_)]
        return list(dict.fromkeys([*of_responses, *(i for t in self.talks.values() for i in t)]))

    @property
    def kept(self) -> set[str]:
        """The responses that are needed."""
        found: set[str] = set()
        for id_ in self.alive:
            step: str | None = id_
            while step is not None and step not in found:
                found.add(step)
                step = self.told[step].previous
        return found

    def own(self, id_: str) -> list[str]:
        return [*self.told[id_].inputs, *self.told[id_].outputs]

    def context(self, id_: str) -> list[str]:
        """What the chain that ends with this response has; nothing for no id."""
        if not id_:
            return []
        return [*self.context(self.told[id_].previous or ""), *self.own(id_)]

    def respond(self, draw: Random) -> None:
        id_, outputs = self.new("resp"), self.new_items(draw.randint(0, 2))
        new, referred = self.new_items(draw.randint(0, 2)), self.some(draw, self.visible)
        into = draw.choice([None, *self.talks])
        previous = None if into else draw.choice([None, *self.alive])
        if previous and any(StoredResponse.objects.filter(public_id=previous, conversation__gt=0)):
            previous = None
        inputs = [*(Item(each, "item_reference", b"") for each in referred), *map(item, new)]
        named = {"previous_id": previous, "conversation_id": into}
        keep(id_, inputs, map(item, outputs), **named)
        self.told[id_] = Told(previous, [*referred, *new], outputs)
        if into:
            talk = self.talks[into]
            talk += [each for each in self.own(id_) if each not in talk]

    def delete(self, draw: Random) -> None:
        for id_ in self.some(draw, self.alive):
            responses.delete(1, id_)
            self.told[id_].is_deleted = True

    def begin(self, draw: Random) -> None:
        id_, items = self.new("conv"), self.new_items(draw.randint(0, 2))
        conversations.create(OWNER, id_, b"{}", list(map(item, items)))
        self.talks[id_] = items

    def add(self, draw: Random) -> None:
        for id_ in self.some(draw, self.talks):
            items = self.new_items(draw.randint(1, 3))
            added = conversations.add(OWNER, id_, list(map(item, items)))
            assert [each.public_id for each in added] == items
            self.talks[id_] += items

    def take_out(self, draw: Random) -> None:
        for id_ in self.some(draw, [id_ for id_, items in self.talks.items() if items]):
            gone = draw.choice(self.talks[id_])
            conversations.delete_item(1, id_, gone)
            self.talks[id_].remove(gone)

    def end(self, draw: Random) -> None:
        for id_ in self.some(draw, self.talks):
            conversations.delete(1, id_)
            del self.talks[id_]

    @staticmethod
    def some(draw: Random, ids: Iterable[str]) -> list[str]:
        known = list(ids)
        return draw.sample(known, min(len(known), draw.randint(0, 1)))


def check(model: Model) -> None:
    """The database answers as the model does."""
    for id_ in model.told:
        if id_ not in model.alive:
            assert is_gone(responses.find, 1, id_)
            assert is_gone(responses.context, 1, id_)
            continue
        found = responses.find(1, id_)
        assert [each.public_id for each in found.outputs] == model.told[id_].outputs
        before = [*model.context(model.told[id_].previous or ""), *model.told[id_].inputs]
        given = partial(responses.input_items, 1, id_)
        assert all_pages(given, 2, is_descending=False) == list(dict.fromkeys(before))
        row = StoredResponse.objects.get(public_id=id_)
        if row.conversation_id is None:
            context = responses.context(1, id_)
            assert [each.public_id for each in context] == model.context(id_)
    for id_, items in model.talks.items():
        pages = partial(conversations.items, 1, id_)
        assert all_pages(pages, 2, is_descending=False) == items
        assert all_pages(pages, 3, is_descending=True) == items[::-1]
    every = [f"msg_{num}" for num in range(model.num + 1)]
    assert set(rows.find_items(1, every)) == set(model.visible)
    assert rows.find_items(9, every) == {}
    sizes = (table.objects.aggregate(n=Sum("num_bytes"))["n"] or 0 for table in TABLES)
    assert rows.stored_bytes(1) == sum(sizes)


TABLES: Any = (StoredResponse, StoredItem, Conversation, StoredChat)


class TestChains(HypothesisTestCase):
    @given(
        st.lists(
            st.sampled_from(["respond", "respond", "delete", "begin", "add", "take_out", "end"])
        ),
        st.randoms(use_true_random=False),
    )
    @settings(max_examples=examples(40), deadline=None)
    def test_the_database_agrees_with_a_model_and_keeps_nothing_that_is_not_needed(
        self, steps: list[str], draw: Random
    ) -> None:
        model = Model()
        for step in steps:
            getattr(model, step)(draw)
        check(model)

        responses.remove_all(Q(expires_at__lte=datetime.now(UTC)))

        check(model)
        stored = set(StoredResponse.objects.values_list("public_id", flat=True))
        assert stored == model.kept
        linked = {i for id_ in model.kept for i in model.own(id_)} | set(model.visible)
        assert set(StoredItem.objects.values_list("public_id", flat=True)) == linked
        for id_ in model.alive:
            responses.delete(1, id_)
        responses.remove_all(Q())
        conversations.remove_all(Q())
        assert not any(
            table.objects.exists() for table in (*TABLES, ResponseItem, ConversationItem)
        )
        assert rows.stored_bytes(1) == 0


@pytest.fixture
def two_tenants(db: None) -> None:
    keep("resp_ours", [item("msg_in")], [item("msg_out")])
    conversations.create(OWNER, "conv_ours", b"{}", [item("msg_talk")])
    store_chat("chatcmpl-ours", OWNER)


def test_ids_of_others_are_unknown_ids_as_are_a_thousand_guesses(two_tenants: None) -> None:
    """The same error for both, but for the id. Each question has its share of the guesses."""
    ids = ["resp_ours", "conv_ours", "chatcmpl-ours", "msg_in", "msg_out", "msg_talk"]
    draw = Random(34)
    kinds = ("resp_", "conv_", "chatcmpl-", "msg_")
    guesses = [f"{draw.choice(kinds)}{draw.getrandbits(128):032x}" for _ in range(1000)]
    page = {"after": None, "limit": 1, "is_descending": False}
    asks: list[Callable[[int | None, str], Any]] = [
        responses.find, responses.context, responses.delete, chats.find, chats.delete,
        conversations.find, conversations.context, conversations.delete,
        lambda whose, id_: responses.input_items(whose, id_, **page),  # type: ignore[arg-type]
        lambda whose, id_: conversations.items(whose, id_, **page),  # type: ignore[arg-type]
        lambda whose, id_: conversations.find_item(whose, "conv_ours", id_),
        lambda whose, id_: conversations.delete_item(whose, "conv_ours", id_),
        lambda whose, id_: conversations.update(whose, id_, b"{}"),
        lambda whose, id_: conversations.lock(whose, id_, "req"),
        lambda whose, id_: conversations.add(Owner(whose), id_, [item("msg_new")]),
        lambda whose, id_: chats.update(whose, id_, {}),
        lambda whose, id_: keep("resp_new", [], [], owner=Owner(whose), previous_id=id_),
        lambda whose, id_: keep("resp_new", [], [], owner=Owner(whose), conversation_id=id_),
        lambda whose, id_: keep("resp_new", [Item(id_, "", b"")], [], owner=Owner(whose)),
    ]  # fmt: skip
    for whose in (9, None):
        for number, ask in enumerate(asks):
            said = set()
            for id_ in (*ids, *guesses[number :: len(asks)]):
                with pytest.raises(NotStored) as refused:
                    ask(whose, id_)
                said.add(str(refused.value).replace(id_, "ID").replace("conv_ours", "ID"))
            assert len(said) == 1
        assert rows.find_items(whose, [*ids, *guesses]) == {}
        assert chats.page(whose, model=None, metadata={}, **page) == ([], False)  # type: ignore[arg-type]
        with_after: Any = {**page, "after": "chatcmpl-ours", "model": None, "metadata": {}}
        with pytest.raises(rows.NoPlace):
            chats.page(whose, **with_after)

    assert responses.find(1, "resp_ours").outputs == [item("msg_out")]
    assert conversations.find_item(1, "conv_ours", "msg_talk") == item("msg_talk")
    assert chats.find(1, "chatcmpl-ours").metadata == {}


@pytest.mark.django_db
@pytest.mark.parametrize("few", [1, 100])
def test_pages_of_chats_are_exact_when_all_have_the_same_second(
    few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chats, "_FEW", few)
    ids = [f"chatcmpl-{num}" for num in range(7)]
    for num, id_ in enumerate(ids):
        store_chat(id_, OWNER, at=NOW + timedelta(days=9999), odd=str(num % 2))

    def pages(metadata: dict[str, str], **page: Any) -> Any:
        found, has_more = chats.page(1, model="m", metadata=metadata, **page)
        return [item(id_) for id_, _ in found], has_more

    for is_descending in (False, True):
        step = -1 if is_descending else 1
        for limit in (1, 2, 7):
            every = all_pages(lambda **page: pages({}, **page), limit, is_descending=is_descending)
            assert every == ids[::step]
        odd = all_pages(lambda **page: pages({"odd": "1"}, **page), 2, is_descending=is_descending)
        assert odd == ids[1::2][::step]


@pytest.mark.django_db
def test_a_response_may_have_more_items_than_a_statement_has_parameters() -> None:
    connection.ensure_connection()
    at_most = sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER
    former = connection.vendor == "sqlite" and connection.connection.setlimit(at_most, 1000)
    try:
        keep("resp_1", [item(f"msg_{number}") for number in range(300)], [item("msg_out")])
    finally:
        if connection.vendor == "sqlite":
            connection.connection.setlimit(at_most, former)
    positions = ResponseItem.objects.order_by("position").values_list("position", flat=True)
    assert list(positions) == list(range(301))


@pytest.mark.django_db
def test_a_page_has_few_bytes_and_always_an_object(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "_PAGE_BYTES", 40)
    ids = [f"msg_{num}" for num in range(5)]
    sizes = (1, 10, 100, 10, 10)
    items = [Item(id_, "m", b"x" * size) for id_, size in zip(ids, sizes, strict=True)]
    conversations.create(OWNER, "conv_1", b"{}", items)
    keep("resp_1", [Item(id_, "", b"") for id_ in ids], [])
    lists: list[Any] = [
        lambda **page: conversations.items(1, "conv_1", **page),
        lambda **page: responses.input_items(1, "resp_1", **page),
    ]
    for pages in lists:
        first = pages(after=None, limit=9, is_descending=False)
        assert ([each.public_id for each in first[0]], first[1]) == (ids[:2], True)
        assert all_pages(pages, 9, is_descending=False) == ids
        assert all_pages(pages, 9, is_descending=True) == ids[::-1]


@pytest.mark.django_db
def test_one_response_holds_a_conversation_and_a_dead_holder_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    conversations.create(OWNER, "conv_1", b"{}", [])
    conversations.lock(1, "conv_1", "req_1")
    with pytest.raises(conversations.ConversationLocked):
        conversations.lock(1, "conv_1", "req_2")
    conversations.unlock("req_2")  # which does not hold it
    with pytest.raises(conversations.ConversationLocked):
        conversations.lock(1, "conv_1", "req_2")
    conversations.unlock("req_1")
    conversations.lock(1, "conv_1", "req_2")

    ended = datetime.now(UTC) - timedelta(seconds=1)
    Conversation.objects.update(locked_until=ended)  # its holder was killed
    conversations.lock(1, "conv_1", "req_3")

    conversations.renew(["req_2"])
    assert Conversation.objects.get().locked_by == "req_3"

    set_clock(monkeypatch, conversations, 600)
    with pytest.raises(conversations.ConversationLocked):
        conversations.lock(1, "conv_1", "req_4")
