"""The actor of a change, for the audit log: an entry point sets the actor, the log reads it.

Entry points are commands, jobs and, by the middleware, requests to pages and the management API.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from asgiref.sync import iscoroutinefunction
from django.http import HttpRequest
from django.utils.decorators import sync_and_async_middleware

from vinery_accounts.outbound.addresses import read_address


@dataclass(frozen=True, slots=True)
class Actor:
    """A user, a user's key, or a program. `user_id` is None for a program."""

    user_id: int | None
    name: str
    ip: str | None = None


SYSTEM = Actor(None, "system")

# A function: a request's user is known only after its session was read.
_current: ContextVar[Callable[[], Actor]] = ContextVar("actor", default=lambda: SYSTEM)


def current_actor() -> Actor:
    return _current.get()()


@contextmanager
def acting_as(actor: Actor | Callable[[], Actor]) -> Iterator[None]:
    """Attribute changes inside to this actor, in this thread or task and its children."""
    token = _current.set(actor if callable(actor) else lambda: actor)
    try:
        yield
    finally:
        _current.reset(token)


# -- Requests -----------------------------------------------------------------------------------

# An authentication that uses no session stores its actor in this attribute of the request.
ACTOR = "vinery_actor"


@sync_and_async_middleware
def actor_middleware(get_response: Callable[..., Any]) -> Callable[..., Any]:
    """Set the actor. Belongs behind Django's authentication in the list of middleware."""
    if iscoroutinefunction(get_response):

        async def answer_async(request: HttpRequest) -> Any:
            with acting_as(lambda: actor_of(request)):
                return await get_response(request)

        return answer_async

    def answer(request: HttpRequest) -> Any:
        with acting_as(lambda: actor_of(request)):
            return get_response(request)

    return answer


def actor_of(request: HttpRequest) -> Actor:
    known: Actor | None = getattr(request, ACTOR, None)
    if known is not None:
        return known
    user: Any = getattr(request, "user", None)
    if user is None or not user.is_authenticated:
        return Actor(None, "anonymous", address_of(request))
    return Actor(user.pk, user.get_username(), address_of(request))


def address_of(request: HttpRequest) -> str | None:
    ip = read_address(request.META.get("REMOTE_ADDR", ""))
    return None if ip is None else str(ip)
