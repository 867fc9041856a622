"""Functions that run in several threads at the same moment, like processes."""

import threading
from collections.abc import Callable
from typing import TypeVar

from django.db import connection

T = TypeVar("T")


def four_at_once(work: Callable[[], list[T]]) -> list[T]:
    """Return the results of four threads."""
    found: list[T] = []
    start = threading.Barrier(4)

    def run() -> None:
        start.wait()
        try:
            found.extend(work())
        finally:
            connection.close()

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found
