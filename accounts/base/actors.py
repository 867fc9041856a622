"""Who acts, for the audit log: set at the door, read where a row changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Actor:
    """A user, a key of a user, or a program. Without an id it is nobody of the users."""

    user_id: int | None
    name: str
    ip: str | None = None


SYSTEM = Actor(None, "system")

# A function, because a request's user is known only after its session was read.
_current: ContextVar[Callable[[], Actor]] = ContextVar("actor", default=lambda: SYSTEM)


def current_actor() -> Actor:
    """Who acts now; the system itself where nobody has said so."""
    return _current.get()()


@contextmanager
def acting_as(actor: Actor | Callable[[], Actor]) -> Iterator[None]:
    """What changes inside is done by this actor, in this thread or task and its children."""
    token = _current.set(actor if callable(actor) else lambda: actor)
    try:
        yield
    finally:
        _current.reset(token)
