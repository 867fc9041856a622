"""Work that several do at the same moment, as processes do."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from django.db import connection

T = TypeVar("T")


def four_at_once(work: Callable[[], list[T]]) -> list[T]:
    """What four threads found, all together."""
    found: list[T] = []
    start = threading.Barrier(4)

    def look() -> None:
        start.wait()
        try:
            found.extend(work())
        finally:
            connection.close()

    threads = [threading.Thread(target=look) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found
