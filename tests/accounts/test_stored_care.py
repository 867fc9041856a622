"""Stored responses, conversations and chats end with their term and with their owner, and leave no
row behind. All are sealed again with a new key."""

import json
from datetime import timedelta
from typing import Any

import pytest
from api.api_client import Tenant, make_tenant
from django.db.models import Q
from django.utils import timezone
from stored_builders import (
    Owner,
    message,
    num_rows,
    store_chat,
    store_conversation,
    store_each,
    store_response,
    store_run,
    wrong_sums,
)

from vinery_accounts.access import changes
from vinery_accounts.models import ApiKey, StoredBytes, StoredItem, StoredResponse, User, stored
from vinery_accounts.models.stored import expire
from vinery_accounts.reencryption import Reencrypted, reencrypt
from vinery_accounts.stored import care, chats, compactions, conversations, responses, runs
from vinery_accounts.stored.rows import Item, NotStored, find_items, stored_bytes
from vinery_accounts.usage.entries import Owners

pytestmark = [pytest.mark.django_db, pytest.mark.stores]

DAY = timedelta(days=1)


@pytest.fixture
def acme(db: None) -> Tenant:
    changes.first_project()
    return make_tenant("acme")


@pytest.fixture
def owner(acme: Tenant, bob: User) -> Owners:
    return Owner(acme.one.pk, bob.pk)


def open_compaction(owner: Owners, item: Item) -> bytes:
    text = json.loads(item.payload)["encrypted_content"]
    for other in (None, (owner.project_id or 0) + 1):
        with pytest.raises(ValueError, match="sealed with another key"):
            compactions.unseal(other, text)
    return compactions.unseal(owner.project_id, text)


def swept() -> int:
    """Sweep, and see that the counted bytes are those of the rows."""
    num_removed = care.sweep(timezone.now())
    assert wrong_sums() == {}
    return num_removed


def test_an_expired_response_leaves_no_row_and_one_that_is_continued_stays(owner: Owners) -> None:
    long_ago = timezone.now() - 31 * DAY
    store_response("resp_1", owner, at=long_ago)
    store_response("resp_2", owner, at=long_ago, previous_id="resp_1")
    store_response("resp_3", owner, previous_id="resp_2")
    store_chat("chatcmpl-1", owner, at=long_ago, topic="a")

    assert swept() == 1  # the chat: the others are what the last one continues
    assert len(responses.context(owner.project_id, "resp_3")) == 6
    with pytest.raises(NotStored):
        responses.find(owner.project_id, "resp_1")

    responses.delete(owner.project_id, "resp_3")
    assert swept() == 2
    assert num_rows() == {}
    assert stored_bytes(owner.project_id) == 0


def test_fewer_days_shorten_what_is_kept_and_more_days_lengthen_nothing(
    acme: Tenant, owner: Owner
) -> None:
    store_response("resp_new", owner)
    store_response("resp_old", owner, at=timezone.now() - 10 * DAY)
    store_chat("chatcmpl-old", owner, at=timezone.now() - 10 * DAY)
    changes.change(acme.one, response_days=60)
    end = StoredResponse.objects.get(public_id="resp_new").expires_at
    assert end - timezone.now() < 30 * DAY

    changes.change(acme.one, response_days=7)

    assert StoredResponse.objects.get(public_id="resp_new").expires_at < end
    with pytest.raises(NotStored):
        responses.find(owner.project_id, "resp_old")
    # An answer that ran meanwhile is stored with the former term.
    store_response("resp_late", owner, at=timezone.now() - 8 * DAY)
    assert swept() == 3
    assert responses.find(owner.project_id, "resp_new")


def test_a_changed_term_is_followed_once_and_again_after_a_late_answer(
    acme: Tenant, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    followed: list[Any] = []

    def follow(project_id: int, *args: Any) -> None:
        stored.follow_days(project_id, *args)
        if not followed:  # an answer that ran meanwhile, while the sweep looks
            store_response("resp_late", owner, at=timezone.now() - 8 * DAY)
        followed.append(project_id)

    store_conversation("conv_a", owner)
    assert swept() == 0
    changes.change(acme.one, response_days=7)
    monkeypatch.setattr(care, "follow_days", follow)

    assert [swept() for _ in range(4)] == [0, 1, 0, 0]
    assert followed == [acme.one.pk] * 2
    store_response("resp_new", owner, days=7)
    assert [swept(), len(followed)] == [0, 2]


def test_no_days_remove_all_at_once_and_only_of_this_project(acme: Tenant, owner: Owners) -> None:
    other, nobody = Owner(acme.two.pk), Owner(None)
    for name, each in {"a": owner, "b": other, "c": nobody}.items():
        store_each(name, each)

    changes.change(acme.one, response_days=0)

    for find, id_ in (
        *((responses.find, "resp_a"), (conversations.find, "conv_a")),
        *((chats.find, "chatcmpl-a"), (conversations.context, "conv_a")),
    ):
        with pytest.raises(NotStored):
            find(owner.project_id, id_)
    assert not find_items(owner.project_id, ["msg_a", "msg_resp_a_in"])
    store_each("late", owner)
    assert swept() == 6
    assert stored_bytes(owner.project_id) == 0
    assert set(StoredItem.objects.values_list("project_id", flat=True)) == {acme.two.pk, None}


def test_clients_without_keys_have_the_term_of_the_first_project(acme: Tenant) -> None:
    first = changes.first_project()
    store_each("a", Owner(None))
    store_each("b", Owner(acme.one.pk))

    changes.change(first, response_days=0)

    assert swept() == 3
    assert not StoredItem.objects.filter(project_id=None).exists()


def test_what_a_removed_project_or_user_had_is_removed(acme: Tenant, bob: User) -> None:
    store_each("a", Owner(acme.one.pk))
    store_each("b", Owner(acme.two.pk, bob.pk))
    store_each("c", Owner(acme.two.pk))

    project_id, user_id = acme.one.pk, bob.pk
    changes.remove(acme.one)
    changes.remove(bob)
    with pytest.raises(NotStored):
        responses.find(acme.two.pk, "resp_b")
    store_each("late", Owner(project_id))

    assert swept() == 9
    assert not StoredItem.objects.filter(project_id=project_id).exists()
    assert not StoredItem.objects.filter(user_id=user_id).exists()
    assert not StoredBytes.objects.filter(project_id=project_id).exists()
    assert responses.find(acme.two.pk, "resp_c")


def test_all_texts_are_sealed_with_the_newest_key(owner: Owners, settings: Any) -> None:
    newest = settings.SECRET_KEY
    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = "an old key, long and random", []
    store_each("a", owner)
    run = store_run("resp_run", owner)
    made = {"id": "cmp_1", "encrypted_content": compactions.seal(owner.project_id, b"content")}
    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = newest, [settings.SECRET_KEY]
    # The client of an old one sends it again.
    compaction = Item("cmp_1", "compaction", json.dumps(made).encode())
    store_conversation("conv_c", owner, compaction)
    assert open_compaction(owner, compaction) == b"content"
    store_each("b", owner)

    def by_topic() -> list[bytes]:
        page = {"model": None, "after": None, "limit": 9, "is_descending": False}
        found, _ = chats.page(owner.project_id, metadata={"topic": "a"}, **page)
        return [texts.completion for _, texts in found]

    of_a = by_topic()
    assert len(of_a) == 1
    kept = set(StoredItem.objects.filter(public_id__contains="b").values_list("sealed", flat=True))

    assert reencrypt() == Reencrypted(18, 0)
    settings.SECRET_KEY_FALLBACKS = []
    (item,) = conversations.context(owner.project_id, "conv_c")
    assert open_compaction(owner, item) == b"content"

    assert by_topic() == of_a
    assert len(responses.find(owner.project_id, "resp_a").outputs) == 1
    assert runs.begin(run) == [b"event\n\n"]
    assert conversations.context(owner.project_id, "conv_a")[0].public_id == "msg_a"
    again = set(StoredItem.objects.filter(public_id__contains="b").values_list("sealed", flat=True))
    assert again == kept  # those of the newest key are not written again
    settings.SECRET_KEY = "another key, which is long and random"
    assert reencrypt() == Reencrypted(0, 18)


END = ("completed", b"{}", [message("msg_end", "assistant")])


def test_nothing_is_stored_for_a_key_that_has_gone_with_its_user(
    acme: Tenant, bob: User, new_key: Any
) -> None:
    new_key(project=acme.one, owner=bob)
    owner = Owners(project_id=acme.one.pk, user_id=bob.pk, key_id=ApiKey.objects.get(owner=bob).pk)
    store_response("resp_early", owner)

    changes.remove(bob)

    swept()
    for store in (store_response, store_chat, store_run, store_conversation):
        with pytest.raises(NotStored):
            store("resp_late", owner)
    assert num_rows() == {}


def test_a_run_goes_on_and_ends_though_its_conversation_or_project_has_gone(acme: Tenant) -> None:
    owner = Owner(acme.one.pk)
    store_conversation("conv_a", owner)
    run = store_run("resp_a", owner, conversation_id="conv_a")
    other = store_run("resp_b", owner)
    conversations.delete(owner.project_id, "conv_a")

    runs.finish(run, END, [], None)
    found = responses.find(owner.project_id, "resp_a")
    assert (found.status, len(found.outputs)) == ("completed", 1)

    changes.remove(acme.one)
    swept()
    assert num_rows() == {}
    with pytest.raises(runs.RunLost):
        runs.finish(other, END, [], None)


def test_a_sweep_ends_after_a_while_and_the_next_one_goes_on(
    owner: Owners, monkeypatch: pytest.MonkeyPatch
) -> None:
    store_each("a", owner)
    expire(Q(project_id=owner.project_id))
    with monkeypatch.context() as patched:
        patched.setattr(care, "_SWEEP_S", 0.0)
        assert swept() == 0
    assert swept() == 3
    assert num_rows() == {}
