"""Stored responses, conversations and chats: made, found, listed, changed and deleted. An id of
another tenant is an unknown id."""

import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Final, TypeVar

import msgspec
from django.core.exceptions import TooManyFieldsSent
from django.http import QueryDict

from vinery_accounts.models import Conversation
from vinery_accounts.stored import chats, conversations, responses, runs
from vinery_accounts.stored.chats import ChatTexts
from vinery_accounts.stored.responses import FoundResponse
from vinery_accounts.stored.rows import Item, page_of, text_of
from vinery_serving.core import field_limits
from vinery_serving.core.errors import InvalidRequest, Overloaded, ServingError
from vinery_serving.core.ids import new_id_token
from vinery_serving.core.memory import ToKeep
from vinery_serving.core.request import Unused
from vinery_serving.core.tasks import Endpoint
from vinery_serving.core.turns import FairTurns, NoTurn
from vinery_serving.gateway.endpoints.background import runs_of
from vinery_serving.gateway.endpoints.edge import Headers, Receive, Scope, Send
from vinery_serving.gateway.endpoints.notices import report_unused
from vinery_serving.gateway.endpoints.refusals import REFUSALS, Reason
from vinery_serving.gateway.endpoints.requests import (
    ApiRequest,
    answer_body,
    raising_shutdown,
    refuse_method,
)
from vinery_serving.gateway.memory import ITEMS, ask, check_room, own_items
from vinery_serving.gateway.reading import worker_jobs
from vinery_serving.gateway.reading.reading import SMALL_BODY_BYTES
from vinery_serving.gateway.recording.record import count_request
from vinery_serving.gateway.state.runtime import Runtime
from vinery_serving.protocols.common.encoding import json_bytes
from vinery_serving.protocols.common.reading import refusal
from vinery_serving.protocols.responses.body import INCLUDABLE
from vinery_serving.protocols.stored import READERS, Deleted, StoredConversation

ResultT = TypeVar("ResultT")
# From a request and its body to the body of its answer; None: the answer is sent.
Answer = Callable[[ApiRequest, ToKeep], Awaitable[bytes | None]]
_MAX_LIMIT: Final = 100


def query_of(scope: Scope) -> QueryDict:
    try:
        return QueryDict(scope["query_string"])
    except TooManyFieldsSent:
        raise InvalidRequest("The query has too many parameters.") from None


@cache
def _turns(_: Runtime) -> FairTurns:
    """One client can use half of the queue, so that others find room."""

    def refuse(_: NoTurn, __: float) -> ServingError:
        REFUSALS.count(Reason.PAGES)
        return Overloaded("Too many pages are being requested. Try again in a moment.")

    return FairTurns(
        2, refuse=refuse, max_waiting=128, max_waiting_in_all=256, wait_s=10.0, max_each=2
    )


async def _find(request: ApiRequest, work: Callable[..., ResultT], *given: Any, **more: Any) -> Any:
    ids = [value for name, value in request.url.items() if name != "tree"]
    asked = partial(work, request.caller.project_id, *ids, *given, **more)
    async with _turns(request.runtime).turn(request.owner):
        return await ask(request.runtime, asked)


def _page_of_query(query: Mapping[str, Any], default_order: str) -> dict[str, Any]:
    """What the client asks of a list, as arguments. Raises `InvalidRequest`."""
    order, limit = query.get("order") or default_order, query.get("limit") or "20"
    if order not in ("asc", "desc"):
        raise InvalidRequest("`order` must be asc or desc.", param="order")
    if not (limit.isascii() and limit.isdigit() and 1 <= int(limit[:6]) <= _MAX_LIMIT):
        raise InvalidRequest(f"`limit` must be from 1 to {_MAX_LIMIT}.", param="limit")
    after = query.get("after") or None
    return {"after": after, "limit": int(limit), "is_descending": order == "desc"}


def _listed(
    found: tuple[Sequence[ResultT], bool], show: Callable[[ResultT], tuple[str, bytes]]
) -> bytes:
    """The list of what was found, each with its id and as JSON, and whether more follow."""
    entries = list(map(show, found[0]))
    ids: list[str | None] = [id_ for id_, _ in entries] or [None]
    data = [msgspec.Raw(text) for _, text in entries]
    whole = {"object": "list", "data": data, "first_id": ids[0], "last_id": ids[-1]}
    return msgspec.json.encode({**whole, "has_more": found[1]})


# -- Answers of one kind


def _including(answer: Answer) -> Answer:
    """Check `include`, of which no value changes what is stored, and shown whole."""

    async def checked(request: ApiRequest, sent: ToKeep) -> bytes | None:
        query = query_of(request.scope)
        for value in (*query.getlist("include[]"), *query.getlist("include")):
            if value not in INCLUDABLE:
                known = ", ".join(sorted(INCLUDABLE))
                raise InvalidRequest(f"`include` must be one of {known}.", param="include")
        return await answer(request, sent)

    return checked


def _showing(
    work: Callable[..., ResultT], show: Callable[[ResultT], bytes], *given: Callable[[ToKeep], Any]
) -> Answer:
    """`given`: from the body to what `work` gets after the ids of the path."""

    async def answer(request: ApiRequest, sent: ToKeep) -> bytes:
        return show(await _find(request, work, *(each(sent) for each in given)))

    return answer


def _deleting(work: Callable[..., None], kind: str) -> Answer:
    async def answer(request: ApiRequest, _: ToKeep) -> bytes:
        await _find(request, work)
        (id_,) = (value for name, value in request.url.items() if name != "tree")
        return json_bytes(Deleted(id=id_, object=kind))

    return answer


def _listing_items(page: Callable[..., tuple[list[Item], bool]]) -> Answer:
    async def answer(request: ApiRequest, _: ToKeep) -> bytes:
        return _listed(
            await _find(request, page, **_page_of_query(query_of(request.scope), "desc")), _item
        )

    return _including(answer)


def _item(item: Item) -> tuple[str, bytes]:
    return item.public_id, item.payload


# -- Responses


def _response_object(found: FoundResponse) -> bytes:
    members = msgspec.json.decode(found.payload, type=dict[str, msgspec.Raw])
    output = [msgspec.Raw(each.payload) for each in found.outputs]
    return msgspec.json.encode({**members, "status": found.status, "output": output})


def flag(query: Mapping[str, Any], name: str) -> bool:
    """Raises `InvalidRequest`."""
    if (value := query.get(name, "false").lower()) not in ("true", "1", "false", "0"):
        raise InvalidRequest(f"`{name}` must be true or false.", param=name)
    return value in ("true", "1")


async def _response(request: ApiRequest, _: ToKeep) -> bytes | None:
    query = query_of(request.scope)
    is_streamed, pads = flag(query, "stream"), flag(query, "include_obfuscation")
    if not is_streamed:
        return _response_object(await _find(request, responses.find))
    number = query.get("starting_after", "-1")
    if not (number == "-1" or (number.isascii() and number.isdigit() and len(number) < 10)):
        raise InvalidRequest("`starting_after` must be a number.", param="starting_after")
    if (await _find(request, runs.read_events, int(number))).has_gone:
        raise InvalidRequest(
            "This response can no longer be streamed because it is more than 60 minutes old, or "
            "was not created with `background`.",
            param="stream",
        )
    about = request, request.url["response_id"], int(number)
    await runs_of(request.runtime).send_events(*about, pads=pads)
    return None


async def _cancel(request: ApiRequest, _: ToKeep) -> bytes:
    if not await _find(request, runs.cancel):
        raise InvalidRequest("Cannot cancel a synchronous response.", param="response_id")
    runs_of(request.runtime).stop(request.url["response_id"])
    return _response_object(await _find(request, responses.find))


# -- Conversations


def _metadata(sent: ToKeep) -> bytes:
    return msgspec.json.encode(sent.metadata)


def _conversation_object(row: Conversation) -> bytes:
    metadata, created_at = msgspec.json.decode(text_of(row)), int(row.created_at.timestamp())
    return json_bytes(
        StoredConversation(id=row.public_id, created_at=created_at, metadata=metadata)
    )


async def _create_conversation(request: ApiRequest, sent: ToKeep) -> bytes:
    create = partial(conversations.create, metadata=_metadata(sent))
    return _conversation_object(await _store(request, create, sent, "conv_"))


async def _add_items(request: ApiRequest, sent: ToKeep) -> bytes:
    add = partial(conversations.add, public_id=request.url["conversation_id"])
    return _listed((await _store(request, add, sent), False), _item)


async def _store(
    request: ApiRequest, work: Callable[..., ResultT], sent: ToKeep, prefix: str = ""
) -> ResultT:
    """Store items. Raises `ServingError`, also for a project that stores nothing."""
    token = new_id_token()
    if not request.memory.keeps:
        raise InvalidRequest(
            "Conversations need a project that stores responses: an owner sets its days of stored "
            "responses."
        )
    await check_room(request.memory)
    new = {"public_id": f"{prefix}{token}"} if prefix else {}
    store = partial(work, request.caller, items=own_items(sent, token), **new)
    done = await ask(request.runtime, store, param=ITEMS)
    # So that the next check reads what there is now.
    request.runtime.stored_bytes[request.caller.project_id] = request.memory.storage.max_bytes
    return done


# -- Chats


def _chat_object(texts: ChatTexts) -> bytes:
    members = msgspec.json.decode(texts.completion, type=dict[str, msgspec.Raw])
    return msgspec.json.encode({**members, "metadata": texts.metadata})


async def _chats(request: ApiRequest, _: ToKeep) -> bytes:
    query = query_of(request.scope).dict()
    asked = {"model": query.get("model"), "metadata": _metadata_of(query)}
    found = await _find(request, chats.page, **asked, **_page_of_query(query, "asc"))
    return _listed(found, lambda each: (each[0], _chat_object(each[1])))


class _Id(msgspec.Struct):
    id: str


def _metadata_of(query: Mapping[str, Any]) -> dict[str, str]:
    """The pairs of `metadata[key]=value`, which all must be there. Raises `InvalidRequest`."""
    pattern = re.compile(r"metadata\[(.*)\]", re.DOTALL)
    named = ((pattern.fullmatch(name), value) for name, value in query.items())
    pairs: dict[str, str] = {found[1]: value for found, value in named if found}
    if any("][" in key for key in pairs):
        raise refusal("metadata", "must be sent as metadata[key]=value")
    if len(pairs) > field_limits.METADATA.value:
        raise refusal("metadata", field_limits.METADATA.sentence(len(pairs)))
    return pairs


async def _messages(request: ApiRequest, _: ToKeep) -> bytes:
    page = _page_of_query(query_of(request.scope), "asc")
    texts = await _find(request, chats.find)
    messages = msgspec.json.decode(texts.messages, type=list[msgspec.Raw])
    ids = [msgspec.json.decode(each, type=_Id).id for each in messages]
    rows = [(at, ids[at], len(each)) for at, each in enumerate(messages)]
    found = await ask(request.runtime, partial(page_of, rows, **page))
    return _listed(found, lambda at: (ids[at], bytes(messages[at])))


# -- The table


@dataclass(frozen=True, slots=True)
class StoredEndpoint:
    """A row of the table of endpoints: an ASGI application. A request with a body counts for rate
    limits on requests, and its body is read as all are: a large one in a worker process."""

    path: str  # a pattern for `re_path`
    runtime: Runtime
    answers: Mapping[str, Answer | None]  # by method; None: another row has it
    endpoint: Endpoint  # that a key must be allowed to call
    reader: str = ""  # of the body of `POST`, a name in `protocols.stored`

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Raises `ServingError` while nothing has been sent."""
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        if (answer := self.answers.get(method)) is None:
            refuse_method(scope, ", ".join(self.answers))
        request = ApiRequest.of(self.runtime, scope, send, f"stored {self.endpoint}")
        has_body = method == "POST" and bool(self.reader)
        await answer_body(request, receive, partial(self._run, answer), has_body=has_body)

    async def _run(self, answer: Answer, request: ApiRequest, body: bytes | None) -> None:
        sent, headers = ToKeep(()), Headers()
        with raising_shutdown(self.runtime.drain):
            if body is not None:
                sent, unused = await self._read(request, body)
                for at, item in enumerate(sent.items):
                    request.memory.opened_of([item], f"items[{at}]")
                report_unused(unused, request.scope, self.runtime.traffic)
                headers = await count_request(self.runtime.limits, request.caller, "", request.id)
            del body
            answered = await answer(request, sent)
        if answered is not None:
            await request.send_json(answered, headers)

    async def _read(self, request: ApiRequest, body: bytes) -> tuple[ToKeep, Unused]:
        if len(body) <= SMALL_BODY_BYTES:
            return READERS[self.reader](body)
        async with self.runtime.workers.worker(request.owner, "body") as worker:
            return await worker.call(worker_jobs.read_stored, self.reader, body=body)


_RESPONSE: Final = r"responses/(?P<response_id>(?!compact/?$)[^/]+)"  # that is no id
_TALK: Final = r"conversations/(?P<conversation_id>[^/]+)"
_ITEM: Final = rf"{_TALK}/items/(?P<item_id>[^/]+)"
_CHAT: Final = r"chat/completions/(?P<completion_id>[^/]+)"
# The readers of bodies, by path.
_READERS: Final = {
    "conversations": "conversations",
    _TALK: "metadata",
    f"{_TALK}/items": "items",
    _CHAT: "metadata",
}
_ANSWERS: Final[Sequence[tuple[str, str, Answer]]] = (
    ("GET", _RESPONSE, _including(_response)),
    ("DELETE", _RESPONSE, _deleting(runs.delete, "response")),
    ("POST", f"{_RESPONSE}/cancel", _cancel),
    ("GET", f"{_RESPONSE}/input_items", _listing_items(responses.input_items)),
    ("POST", "conversations", _create_conversation),
    ("GET", _TALK, _showing(conversations.find, _conversation_object)),
    ("DELETE", _TALK, _deleting(conversations.delete, "conversation.deleted")),
    ("POST", _TALK, _showing(conversations.update, _conversation_object, _metadata)),
    ("GET", f"{_TALK}/items", _listing_items(conversations.items)),
    ("POST", f"{_TALK}/items", _including(_add_items)),
    ("GET", _ITEM, _including(_showing(conversations.find_item, lambda item: item.payload))),
    ("DELETE", _ITEM, _showing(conversations.delete_item, _conversation_object)),
    ("GET", _CHAT, _showing(chats.find, _chat_object)),
    ("DELETE", _CHAT, _deleting(chats.delete, "chat.completion.deleted")),
    ("POST", _CHAT, _showing(chats.update, _chat_object, lambda sent: dict(sent.metadata))),
    ("GET", f"{_CHAT}/messages", _messages),
)


def stored_endpoints(runtime: Runtime) -> Iterator[StoredEndpoint]:
    for path in dict.fromkeys(path for _, path, _ in _ANSWERS):
        endpoint = Endpoint.CHAT if path.startswith("chat") else Endpoint.RESPONSES
        answers = {method: answer for method, of, answer in _ANSWERS if of == path}
        pattern, reader = rf"^(?P<tree>v1|v3)/{path}/?$", _READERS.get(path, "")
        yield StoredEndpoint(pattern, runtime, answers, endpoint, reader)


def chat_list(runtime: Runtime) -> StoredEndpoint:
    return StoredEndpoint("", runtime, {"GET": _chats, "POST": None}, Endpoint.CHAT)
