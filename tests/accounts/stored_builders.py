"""Stored responses, conversations and chats, as the gateway stores them."""

from datetime import datetime, timedelta, tzinfo
from types import ModuleType
from typing import Any, Self

import msgspec
import pytest
from django.db import transaction
from django.db.models import Sum
from django.utils import timezone

from vinery_accounts import models
from vinery_accounts.stored import chats, conversations, responses, runs
from vinery_accounts.stored.rows import Item
from vinery_accounts.usage.entries import Owners


def Owner(  # noqa: N802
    project_id: int | None, user_id: int | None = None, key_id: int | None = None
) -> Owners:
    return Owners(project_id=project_id, user_id=user_id, key_id=key_id)


TABLES = (
    *(models.StoredResponse, models.StoredItem, models.ResponseItem, models.Conversation),
    *(models.ConversationItem, models.StoredChat, models.ChatMetadata),
)


def num_rows() -> dict[str, int]:
    """The tables with rows of stored objects, by name."""
    return {each.__name__: num for each in TABLES if (num := each.objects.count())}


def wrong_sums() -> dict[int, tuple[int, int]]:
    """The bytes that are counted and those that the rows have, of projects where they differ."""
    tables = (models.StoredResponse, models.StoredItem, models.Conversation, models.StoredChat)
    found: dict[int, tuple[int, int]] = {}
    for each in models.StoredBytes.objects.all():
        owned = [table.objects.of(each.project_id or None) for table in tables]
        kept = sum(rows.aggregate(n=Sum("num_bytes"))["n"] or 0 for rows in owned)
        found[each.project_id] = (each.num_bytes, kept)
    return {pk: sums for pk, sums in found.items() if sums[0] != sums[1]}


def message(id_: str, role: str = "user", text: str = "Hello") -> Item:
    kind = "input_text" if role == "user" else "output_text"
    body = {"id": id_, "type": "message", "role": role, "content": [{"type": kind, "text": text}]}
    return Item(id_, "message", msgspec.json.encode(body))


def new_response(
    id_: str, owner: Owners, *, days: int = 30, at: datetime | None = None, **more: Any
) -> responses.NewResponse:
    """A response with one message of each side."""
    filled: dict[str, Any] = {
        "status": "completed",
        "inputs": (message(f"msg_{id_}_in"),),
        "outputs": (message(f"msg_{id_}_out", "assistant", "Hi"),),
        "payload": msgspec.json.encode({"id": id_, "object": "response", "output": []}),
    }
    new = (owner, id_, "m", "", at or timezone.now(), days)
    return responses.NewResponse(*new, **{**filled, **more})


def store_response(id_: str, owner: Owners, **more: Any) -> None:
    with transaction.atomic():
        responses.keep(new_response(id_, owner, **more))


def store_conversation(id_: str, owner: Owners, *items: Item) -> None:
    conversations.create(owner, id_, b"{}", items)


def store_chat(id_: str, owner: Owners, *, at: datetime | None = None, **metadata: str) -> None:
    messages = [{"role": "user", "content": "Hello", "id": f"{id_}-0"}]
    completion = {"id": id_, "choices": [{"message": {"role": "assistant", "content": "Hi"}}]}
    texts = chats.ChatTexts(
        msgspec.json.encode(completion), msgspec.json.encode(messages), metadata
    )
    now = at or timezone.now()
    with transaction.atomic():
        chats.keep(chats.NewChat(owner, id_, "m", "", now, 30, texts))


def store_each(name: str, owner: Owners) -> None:
    """A response, a conversation and a chat."""
    store_response(f"resp_{name}", owner)
    store_conversation(f"conv_{name}", owner, message(f"msg_{name}"))
    store_chat(f"chatcmpl-{name}", owner, topic=name)


def queue(id_: str, owner: Owners, **more: Any) -> None:
    new = new_response(id_, owner, status="queued", outputs=(), **more)
    runs.create(new, runs.StoredRequest(tree="v1", body=b"{}"))


def store_run(id_: str, owner: Owners, **more: Any) -> models.BackgroundRun:
    """A background response with an event, which this process runs."""
    queue(id_, owner, **more)
    (run,) = [e for e in runs.claim(runs.this_process(), 100) if e.response.public_id == id_]
    runs.progress(run, [b"event\n\n"], b"trail")
    return run


def set_clock(monkeypatch: pytest.MonkeyPatch, module: ModuleType, shift_s: int) -> None:
    """Let a module run as on a host whose clock is wrong."""

    class Wrong(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Self:
            return super().now(tz) + timedelta(seconds=shift_s)

    monkeypatch.setattr(module, "datetime", Wrong)
