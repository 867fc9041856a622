"""Stored responses, conversations and chats: made, found, listed, changed and deleted. An id of
another tenant is an unknown id.

Django has the methods without a body. A body is read as those of all endpoints are: large ones in a
worker process.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar

import msgspec
from django.http import HttpRequest, HttpResponse, QueryDict, StreamingHttpResponse
from django.urls import re_path

from vinery_accounts.alerts.deliveries import response_ended
from vinery_accounts.base.errors import DATABASE_UNAVAILABLE
from vinery_accounts.keys.table import Caller
from vinery_accounts.stored import chats, conversations, responses, runs
from vinery_accounts.stored.chats import ChatTexts
from vinery_accounts.stored.conversations import FoundConversation
from vinery_accounts.stored.rows import Item, NotStored, Owner, page_of, stored_bytes
from vinery_serving.core import field_limits
from vinery_serving.core.errors import InvalidRequest, NotFound, Unavailable
from vinery_serving.core.ids import new_id_token
from vinery_serving.core.memory import ToKeep
from vinery_serving.core.tasks import Endpoint
from vinery_serving.core.unused import Unused
from vinery_serving.gateway.endpoints.background import runs_of
from vinery_serving.gateway.endpoints.edge import App, Receive, Scope, Send
from vinery_serving.gateway.endpoints.notices import report_unused
from vinery_serving.gateway.endpoints.requests import (
    ApiRequest,
    answer_body,
    answer_others,
    raising_shutdown,
)
from vinery_serving.gateway.endpoints.streaming import STREAM
from vinery_serving.gateway.endpoints.views import View, for_clients
from vinery_serving.gateway.memory.keeping import check_room, own_items
from vinery_serving.gateway.memory.recalling import storage_of
from vinery_serving.gateway.reading import worker_jobs
from vinery_serving.gateway.reading.reading import SMALL_BODY_BYTES
from vinery_serving.gateway.recording.reservation import count_request
from vinery_serving.gateway.state.runtime import Runtime, runtime
from vinery_serving.protocols.common.encoding import json_bytes
from vinery_serving.protocols.common.reading import refusal
from vinery_serving.protocols.responses.body import INCLUDABLE
from vinery_serving.protocols.stored import READERS, Deleted, StoredConversation

ResultT = TypeVar("ResultT")

_MAX_LIMIT: Final = 100
TREE: Final = r"^(?P<tree>v1|v3)/"


def json_response(content: bytes) -> HttpResponse:
    return HttpResponse(content, content_type="application/json")


def deleted(id_: str, kind: str) -> HttpResponse:
    return json_response(json_bytes(Deleted(id=id_, object=kind)))


async def stored(work: Callable[[], ResultT]) -> ResultT:
    """Do this in a thread. Raises `NotFound` for what is not stored, and `Unavailable`."""
    try:
        return await runtime().recall(work)
    except NotStored as error:
        raise NotFound(str(error)) from None
    except (*DATABASE_UNAVAILABLE, TimeoutError):
        raise Unavailable("Stored objects cannot be read just now. Try again.") from None


def page_of_query(query: Mapping[str, str], default_order: str) -> dict[str, Any]:
    """What the client asks of a list, as arguments. Raises `InvalidRequest`."""
    order, limit = query.get("order") or default_order, query.get("limit") or "20"
    if order not in ("asc", "desc"):
        raise InvalidRequest("`order` must be asc or desc.", param="order")
    if not (limit.isascii() and limit.isdigit() and 1 <= int(limit[:6]) <= _MAX_LIMIT):
        raise InvalidRequest(f"`limit` must be from 1 to {_MAX_LIMIT}.", param="limit")
    after = query.get("after") or None
    return {"after": after, "limit": int(limit), "is_descending": order == "desc"}


def check_include(query: QueryDict) -> None:
    """No value changes what is stored, and shown whole. Raises `InvalidRequest`."""
    for value in (*query.getlist("include[]"), *query.getlist("include")):
        if value not in INCLUDABLE:
            known = ", ".join(sorted(INCLUDABLE))
            raise InvalidRequest(f"`include` must be one of {known}.", param="include")


def listed(
    found: tuple[Sequence[ResultT], bool] | None, show: Callable[[ResultT], tuple[str, bytes]]
) -> HttpResponse:
    """The list of what was found, each with its id and as JSON, and whether more follow. Raises
    `InvalidRequest` for None: the page follows an object that is not there."""
    if found is None:
        raise InvalidRequest("`after` names no object of this list.", param="after")
    entries = list(map(show, found[0]))
    ids: list[str | None] = [id_ for id_, _ in entries] or [None]
    data = [msgspec.Raw(text) for _, text in entries]
    whole = {"object": "list", "data": data, "first_id": ids[0], "last_id": ids[-1]}
    return json_response(msgspec.json.encode({**whole, "has_more": found[1]}))


def _item(item: Item) -> tuple[str, bytes]:
    return item.public_id, item.payload


# -- Responses


async def response(
    request: HttpRequest, caller: Caller, tree: str, response_id: str
) -> HttpResponse | StreamingHttpResponse:
    project_id = caller.project_id
    if request.method == "DELETE":
        await stored(partial(responses.delete, project_id, response_id))
        return deleted(response_id, "response")
    check_include(request.GET)
    if request.GET.get("stream", "").lower() in ("true", "1"):
        return await _followed(project_id, response_id, request.GET.get("starting_after"))
    return await _found(project_id, response_id)


async def _found(project_id: int | None, response_id: str) -> HttpResponse:
    found = await stored(partial(responses.find, project_id, response_id))
    members = msgspec.json.decode(found.payload, type=dict[str, msgspec.Raw])
    output = [msgspec.Raw(each.payload) for each in found.outputs]
    return json_response(msgspec.json.encode({**members, "status": found.status, "output": output}))


async def _followed(
    project_id: int | None, response_id: str, starting_after: str | None
) -> StreamingHttpResponse:
    """The events of a background response, from its first or after a number."""
    number = starting_after or "-1"
    if not (number == "-1" or (number.isascii() and number.isdigit() and len(number) < 10)):
        raise InvalidRequest("`starting_after` must be a number.", param="starting_after")
    found = await stored(partial(runs.read_events, project_id, response_id, int(number)))
    if found.has_gone:
        raise InvalidRequest(
            "This response can no longer be streamed because it is more than 60 minutes old, or "
            "was not created with `background`.",
            param="stream",
        )
    frames = runs_of(runtime()).follow(project_id, response_id, int(number))
    headers = {name.decode(): value.decode() for name, value in STREAM}
    return StreamingHttpResponse(frames, headers=headers)


async def input_items(
    request: HttpRequest, caller: Caller, tree: str, response_id: str
) -> HttpResponse:
    check_include(request.GET)
    page = page_of_query(request.GET.dict(), "desc")
    asked = partial(responses.input_items, caller.project_id, response_id, **page)
    return listed(await stored(asked), _item)


async def cancel(request: HttpRequest, caller: Caller, tree: str, response_id: str) -> HttpResponse:
    project_id = caller.project_id
    if not await stored(partial(runs.cancel, project_id, response_id, response_ended)):
        raise InvalidRequest("Cannot cancel a synchronous response.", param="response_id")
    runs_of(runtime()).stop(response_id)
    return await _found(project_id, response_id)


# -- Conversations


def _conversation_object(found: FoundConversation) -> bytes:
    return json_bytes(
        StoredConversation(
            id=found.public_id,
            created_at=int(found.created_at.timestamp()),
            metadata=msgspec.json.decode(found.payload),
        )
    )


async def conversation(
    request: HttpRequest, caller: Caller, tree: str, conversation_id: str
) -> HttpResponse:
    project_id = caller.project_id
    if request.method == "DELETE":
        await stored(partial(conversations.delete, project_id, conversation_id))
        return deleted(conversation_id, "conversation.deleted")
    found = await stored(partial(conversations.find, project_id, conversation_id))
    return json_response(_conversation_object(found))


async def conversation_items(
    request: HttpRequest, caller: Caller, tree: str, conversation_id: str
) -> HttpResponse:
    check_include(request.GET)
    page = page_of_query(request.GET.dict(), "desc")
    asked = partial(conversations.items, caller.project_id, conversation_id, **page)
    return listed(await stored(asked), _item)


async def conversation_item(
    request: HttpRequest, caller: Caller, tree: str, conversation_id: str, item_id: str
) -> HttpResponse:
    named = (caller.project_id, conversation_id, item_id)
    if request.method == "DELETE":
        found = await stored(partial(conversations.delete_item, *named))
        return json_response(_conversation_object(found))
    check_include(request.GET)
    return json_response((await stored(partial(conversations.find_item, *named))).payload)


# -- Chats


def _chat_object(texts: ChatTexts) -> bytes:
    members = msgspec.json.decode(texts.completion, type=dict[str, msgspec.Raw])
    return msgspec.json.encode({**members, "metadata": texts.metadata})


async def stored_chats(request: HttpRequest, caller: Caller, tree: str) -> HttpResponse:
    page = page_of_query(request.GET.dict(), "asc")
    model, metadata = request.GET.get("model"), _metadata_of(request.GET.dict())
    asked = partial(chats.page, caller.project_id, model=model, metadata=metadata, **page)
    return listed(await stored(asked), lambda each: (_id_of(each.completion), _chat_object(each)))


class _Id(msgspec.Struct):
    id: str


def _id_of(text: bytes | msgspec.Raw) -> str:
    return msgspec.json.decode(text, type=_Id).id


def _metadata_of(query: Mapping[str, str]) -> dict[str, str]:
    """The pairs of `metadata[key]=value`, which all must be there. Raises `InvalidRequest`."""
    pairs: dict[str, str] = {
        name.removeprefix("metadata[").removesuffix("]"): value
        for name, value in query.items()
        if name.startswith("metadata[") and name.endswith("]")
    }
    if any("][" in key for key in pairs):
        raise refusal("metadata", "must be sent as metadata[key]=value")
    if len(pairs) > field_limits.METADATA.value:
        raise refusal("metadata", field_limits.METADATA.sentence(len(pairs)))
    return pairs


async def stored_chat(
    request: HttpRequest, caller: Caller, tree: str, completion_id: str
) -> HttpResponse:
    named = (caller.project_id, completion_id)
    if request.method == "DELETE":
        await stored(partial(chats.delete, *named))
        return deleted(completion_id, "chat.completion.deleted")
    return json_response(_chat_object(await stored(partial(chats.find, *named))))


async def chat_messages(
    request: HttpRequest, caller: Caller, tree: str, completion_id: str
) -> HttpResponse:
    page = page_of_query(request.GET.dict(), "asc")
    texts = await stored(partial(chats.find, caller.project_id, completion_id))
    messages = msgspec.json.decode(texts.messages, type=list[msgspec.Raw])
    rows = [(at, _id_of(each), len(each)) for at, each in enumerate(messages)]
    found = page_of(rows, **page)
    return listed(found, lambda at: (rows[at][1], bytes(messages[at])))


# -- Bodies


async def create_conversation(request: ApiRequest, sent: ToKeep) -> bytes:
    await _check_storage(request)
    token, metadata = new_id_token(), msgspec.json.encode(sent.metadata)
    id_, items = f"conv_{token}", own_items(sent, token)
    work = partial(conversations.create, Owner.of(request.caller), id_, metadata, items)
    return _conversation_object(await _store(request, work))


async def update_conversation(request: ApiRequest, sent: ToKeep) -> bytes:
    metadata = msgspec.json.encode(sent.metadata)
    named = (request.caller.project_id, request.url["conversation_id"])
    return _conversation_object(await stored(partial(conversations.update, *named, metadata)))


async def add_items(request: ApiRequest, sent: ToKeep) -> bytes:
    check_include(QueryDict(request.scope["query_string"]))
    await _check_storage(request)
    id_, items = request.url["conversation_id"], own_items(sent, new_id_token())
    work = partial(conversations.add, Owner.of(request.caller), id_, items)
    return listed((await _store(request, work), False), _item).content


async def update_chat(request: ApiRequest, sent: ToKeep) -> bytes:
    named = (request.caller.project_id, request.url["completion_id"])
    return _chat_object(await stored(partial(chats.update, *named, dict(sent.metadata))))


async def _check_storage(request: ApiRequest) -> None:
    """Raises `InvalidRequest` for a project that stores nothing, and `LimitReached`."""
    if storage_of(request.runtime, request.caller).days == 0:
        raise InvalidRequest(
            "Conversations need a project that stores responses: an owner sets its days of stored "
            "responses."
        )
    await check_room(request.runtime, request.caller)


async def _store(request: ApiRequest, work: Callable[[], ResultT]) -> ResultT:
    """Store, and note how much the project has stored now."""
    project_id = request.caller.project_id

    def store() -> tuple[ResultT, int]:
        try:
            return work(), stored_bytes(project_id)
        except NotStored as error:
            if error.what == "Item":  # that a reference names
                raise InvalidRequest(str(error), param="items") from None
            raise

    result, num_bytes = await stored(store)
    request.runtime.keeper.num_bytes[project_id] = num_bytes
    return result


@dataclass(frozen=True, slots=True)
class StoredEndpoint:
    """A row of the table of endpoints: an ASGI application that answers `POST` with a body about
    stored objects. Each counts for rate limits on requests."""

    path: str  # a pattern for `re_path`
    name: str  # of its reader in `protocols.stored`
    answer: Callable[[ApiRequest, ToKeep], Awaitable[bytes]]
    runtime: Runtime
    others: App | None  # answers the other methods

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Raises `ServingError` while nothing has been sent."""
        if scope["method"] != "POST":
            await answer_others(self.others, scope, receive, send)
            return
        await answer_body(ApiRequest.of(self.runtime, scope, send, self.name), receive, self._run)

    async def _run(self, request: ApiRequest, body: bytes) -> None:
        with raising_shutdown(self.runtime.drain):
            sent, unused = await self._read(request, body)
            del body
            for at, item in enumerate(sent.items):
                request.memory.opened_of([item], f"items[{at}]")
            report_unused(unused, request.scope, self.runtime.traffic)
            headers = await count_request(self.runtime.limits, request.caller, "", request.id)
            answer = await self.answer(request, sent)
        await request.send_json(answer, headers)

    async def _read(self, request: ApiRequest, body: bytes) -> tuple[ToKeep, Unused]:
        if len(body) <= SMALL_BODY_BYTES:
            return READERS[self.name](body)
        async with self.runtime.workers.worker(request.owner, "body") as worker:
            return await worker.call(worker_jobs.read_stored, self.name, body=body)


def stored_endpoints(runtime: Runtime, others: App) -> Iterator[StoredEndpoint]:
    path, name = rf"{TREE}conversations/?$", "conversations"  # without a list
    yield StoredEndpoint(path, name, create_conversation, runtime, None)
    for path, name, answer in (
        (_CONVERSATION, "conversations/metadata", update_conversation),
        (rf"{_CONVERSATION}/items", "conversations/items", add_items),
        (_CHAT, "chat/completions/metadata", update_chat),
    ):
        yield StoredEndpoint(rf"{TREE}{path}/?$", name, answer, runtime, others)


_RESPONSE: Final = r"responses/(?P<response_id>(?!compact/?$)[^/]+)"  # that is no id
_CONVERSATION: Final = r"conversations/(?P<conversation_id>[^/]+)"
_CHAT: Final = r"chat/completions/(?P<completion_id>[^/]+)"
# Patterns, views and methods. `StoredEndpoint` and `JsonEndpoint` answer `POST` with a body.
_VIEWS: Final[Sequence[tuple[str, View, str]]] = (
    (_RESPONSE, response, "GET, DELETE"),
    (rf"{_RESPONSE}/cancel", cancel, "POST"),
    (rf"{_RESPONSE}/input_items", input_items, "GET"),
    (_CONVERSATION, conversation, "GET, DELETE, POST"),
    (rf"{_CONVERSATION}/items", conversation_items, "GET, POST"),
    (rf"{_CONVERSATION}/items/(?P<item_id>[^/]+)", conversation_item, "GET, DELETE"),
    ("chat/completions", stored_chats, "GET, POST"),
    (_CHAT, stored_chat, "GET, DELETE, POST"),
    (rf"{_CHAT}/messages", chat_messages, "GET"),
)
urlpatterns = [
    re_path(
        rf"{TREE}{path}/?$",
        for_clients(
            view,
            methods=methods.split(", "),
            endpoint=Endpoint.CHAT if path.startswith(Endpoint.CHAT) else Endpoint.RESPONSES,
        ),
    )
    for path, view, methods in _VIEWS
]
