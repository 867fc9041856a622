"""Reading and writing the database from a test that runs in an event loop."""

from collections.abc import Awaitable, Callable

from asgiref.sync import sync_to_async
from django.db import connections


def in_thread(function: Callable[[], object]) -> Awaitable[None]:
    """Run a function in a thread that gives its connection back: each event loop has own threads,
    and PostgreSQL's pool has few connections."""

    def call() -> None:
        try:
            function()
        finally:
            connections.close_all()

    return sync_to_async(call, thread_sensitive=False)()
