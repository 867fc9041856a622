"""Stored responses: found, listed and deleted. An id of another tenant is an unknown id."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar

import msgspec
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.urls import re_path

from vinery_accounts.base.errors import DATABASE_UNAVAILABLE
from vinery_accounts.keys.table import Caller
from vinery_accounts.stored import responses, runs
from vinery_accounts.stored.rows import Item, NotStored
from vinery_serving.core.errors import InvalidRequest, NotFound, Unavailable
from vinery_serving.gateway.endpoints.background import response_ended, runs_of
from vinery_serving.gateway.endpoints.streaming import STREAM
from vinery_serving.gateway.endpoints.views import for_clients
from vinery_serving.gateway.state.runtime import runtime

ResultT = TypeVar("ResultT")

_MAX_LIMIT: Final = 100
TREE: Final = r"^(?P<tree>v1|v3)/"


def json_response(content: bytes) -> HttpResponse:
    return HttpResponse(content, content_type="application/json")


async def stored(work: Callable[[], ResultT]) -> ResultT:
    """Do this in a thread. Raises `NotFound` for what is not stored, and `Unavailable`."""
    try:
        return await runtime().recall(work)
    except NotStored as error:
        raise NotFound(str(error)) from None
    except (*DATABASE_UNAVAILABLE, TimeoutError):
        raise Unavailable("Stored objects cannot be read just now. Try again.") from None


@dataclass(frozen=True, slots=True)
class Page:
    """What the client asks of a list."""

    after: str | None
    limit: int
    is_descending: bool

    @classmethod
    def of(cls, query: Mapping[str, str], *, default_order: str, most: int = _MAX_LIMIT) -> "Page":
        """Raises `InvalidRequest`."""
        order = query.get("order") or default_order
        if order not in ("asc", "desc"):
            raise InvalidRequest("`order` must be asc or desc.", param="order")
        limit = query.get("limit") or "20"
        if not (limit.isascii() and limit.isdigit() and 1 <= int(limit[:6]) <= most):
            raise InvalidRequest(f"`limit` must be from 1 to {most}.", param="limit")
        return cls(query.get("after") or None, int(limit), order == "desc")

    def arguments(self) -> dict[str, Any]:
        return {"after": self.after, "limit": self.limit, "is_descending": self.is_descending}


def list_object(found: tuple[list[tuple[str, bytes]], bool] | None) -> HttpResponse:
    """The list of these ids and JSON objects, and whether more follow. Raises `InvalidRequest` for
    None: the page follows an object that is not there."""
    if found is None:
        raise InvalidRequest("`after` names no object of this list.", param="after")
    entries, has_more = found
    ids = [id_ for id_, _ in entries]
    head = {"object": "list", "data": [msgspec.Raw(text) for _, text in entries]}
    ends = {"first_id": ids[0] if ids else None, "last_id": ids[-1] if ids else None}
    return json_response(msgspec.json.encode({**head, **ends, "has_more": has_more}))


def item_list(found: tuple[list[Item], bool] | None) -> HttpResponse:
    if found is None:
        return list_object(None)
    items, has_more = found
    return list_object(([(each.public_id, each.payload) for each in items], has_more))


async def response(
    request: HttpRequest, caller: Caller, tree: str, response_id: str
) -> HttpResponse | StreamingHttpResponse:
    project_id = caller.project_id
    if request.method == "DELETE":
        await stored(partial(responses.delete, project_id, response_id))
        deleted = {"id": response_id, "object": "response", "deleted": True}
        return json_response(msgspec.json.encode(deleted))
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
    page = Page.of(request.GET.dict(), default_order="desc")
    asked = partial(responses.input_items, caller.project_id, response_id, **page.arguments())
    return item_list(await stored(asked))


async def cancel(request: HttpRequest, caller: Caller, tree: str, response_id: str) -> HttpResponse:
    project_id = caller.project_id
    if not await stored(partial(runs.cancel, project_id, response_id, response_ended)):
        raise InvalidRequest("Cannot cancel a synchronous response.", param="response_id")
    runs_of(runtime()).stop(response_id)
    return await _found(project_id, response_id)


_ONE: Final = TREE + r"responses/(?P<response_id>[^/]+)"
urlpatterns = [
    re_path(rf"{_ONE}/?$", for_clients(response, methods=("GET", "DELETE"))),
    re_path(rf"{_ONE}/cancel/?$", for_clients(cancel, methods=("POST",))),
    re_path(rf"{_ONE}/input_items/?$", for_clients(input_items)),
]
