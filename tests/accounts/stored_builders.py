"""Stored responses, conversations and chats, as the gateway stores them."""

from datetime import datetime
from typing import Any

import msgspec
from django.db import transaction
from django.utils import timezone

from vinery_accounts import models
from vinery_accounts.stored import chats, conversations, responses, runs
from vinery_accounts.stored.rows import Item, Owner

TABLES = (
    *(models.StoredResponse, models.StoredItem, models.ResponseItem, models.Conversation),
    *(models.ConversationItem, models.StoredChat, models.ChatMetadata),
)


def num_rows() -> dict[str, int]:
    """The tables with rows of stored objects, by name."""
    return {each.__name__: num for each in TABLES if (num := each.objects.count())}


def message(id_: str, role: str = "user", text: str = "Hello") -> Item:
    kind = "input_text" if role == "user" else "output_text"
    body = {"id": id_, "type": "message", "role": role, "content": [{"type": kind, "text": text}]}
    return Item(id_, "message", msgspec.json.encode(body))


def store_response(
    id_: str, owner: Owner, *, days: int = 30, at: datetime | None = None, **more: Any
) -> None:
    """A response with one message of each side."""
    payload = msgspec.json.encode({"id": id_, "object": "response", "model": "m", "output": []})
    filled: dict[str, Any] = {
        "inputs": (message(f"msg_{id_}_in"),),
        "outputs": (message(f"msg_{id_}_out", "assistant", "Hi"),),
        "payload": payload,
    }
    with transaction.atomic():
        responses.keep(
            responses.NewResponse(
                owner=owner,
                public_id=id_,
                status="completed",
                model="m",
                request_id="",
                created_at=at or timezone.now(),
                days=days,
                **{**filled, **more},
            )
        )


def store_conversation(id_: str, owner: Owner, *items: Item) -> None:
    conversations.create(owner, id_, b"{}", items)


def store_chat(id_: str, owner: Owner, *, at: datetime | None = None, **metadata: str) -> None:
    messages = [{"role": "user", "content": "Hello", "id": f"{id_}-0"}]
    completion = {"id": id_, "choices": [{"message": {"role": "assistant", "content": "Hi"}}]}
    texts = chats.ChatTexts(
        msgspec.json.encode(completion), msgspec.json.encode(messages), metadata
    )
    now = at or timezone.now()
    with transaction.atomic():
        chats.keep(chats.NewChat(owner, id_, "m", "", now, 30, texts))


def store_each(name: str, owner: Owner) -> None:
    """A response, a conversation and a chat."""
    store_response(f"resp_{name}", owner)
    store_conversation(f"conv_{name}", owner, message(f"msg_{name}"))
    store_chat(f"chatcmpl-{name}", owner, topic=name)


def store_run(id_: str, owner: Owner, **more: Any) -> runs.ClaimedRun:
    """A background response with an event, which this process runs."""
    new = responses.NewResponse(
        owner=owner,
        public_id=id_,
        status="queued",
        model="m",
        request_id="",
        created_at=timezone.now(),
        days=30,
        payload=b"{}",
        inputs=(message(f"msg_{id_}_in"),),
        outputs=(),
        **more,
    )
    asked = {"request_id": "req", "token": "t", "created_at": 0, "tree": "v1", "body": b"{}"}
    runs.create(new, runs.StoredRequest(**asked, key_id=None))
    (run,) = [each for each in runs.claim(runs.this_process(), 100) if each.public_id == id_]
    runs.progress(run, [b"event"], b"trail")
    return run


def finish_run(run: runs.ClaimedRun) -> None:
    runs.finish(
        run,
        status="completed",
        payload=b"{}",
        outputs=[message(f"msg_{run.public_id}_out", "assistant")],
        events=[],
        settlement=None,
        on_end=lambda *_: None,
    )
