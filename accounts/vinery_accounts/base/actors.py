"""The actor of a change, for the audit log: an entry point sets it, the log reads it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


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
    """The actor of this thread or task; `SYSTEM` if none was set."""
    return _current.get()()


@contextmanager
def acting_as(actor: Actor | Callable[[], Actor]) -> Iterator[None]:
    """Attribute changes inside to this actor, in this thread or task and its children."""
    token = _current.set(actor if callable(actor) else lambda: actor)
    try:
        yield
    finally:
        _current.reset(token)
