"""The Celery application, and a transport that stores messages in files, without Redis.

Only jobs send and run tasks: a process that imports `accounts/tasks` imports this file before.

Kombu's own transport may read an incomplete message, and reads through the system's temporary
folder. This one renames a message when it is complete. A killed worker loses the message that it
has taken, so a periodic task must also find every job.
"""

import threading
import time
import uuid
from pathlib import Path
from queue import Empty
from typing import Any, Final, cast

from celery import Celery
from kombu.transport import filesystem
from kombu.utils.json import dumps, loads

# How often the worker looks for messages of other processes, such as `celery call`. Nearly all
# messages come from this process, and are found at once.
_POLLING_INTERVAL_S: Final = 2.0
_has_news: Final = threading.Event()


def look_now() -> None:
    """Let the worker of this process look for messages, and whether it should end."""
    _has_news.set()


class Channel(filesystem.Channel):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._folder = Path(self.data_folder_in)
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def _put(self, queue: str, payload: Any, **_: Any) -> None:  # type: ignore[override]
        # Names sort by age, and have the ending that kombu's `_size` and `_purge` expect.
        name = f"{time.time_ns()}_{uuid.uuid4()}.{queue}.msg"
        draft = self._folder / f"{name}.draft"
        draft.write_text(dumps(payload), encoding="utf-8")
        draft.rename(self._folder / name)
        look_now()

    def _get(self, queue: str, timeout: float | None = None) -> Any:
        for file in sorted(self._folder.glob(f"*.{queue}.msg")):
            try:
                taken = file.rename(file.with_suffix(".taken"))
            except FileNotFoundError:  # another worker was faster
                continue
            payload = taken.read_text(encoding="utf-8")
            taken.unlink()
            return loads(payload)
        raise Empty


class Transport(filesystem.Transport):
    Channel = Channel
    polling_interval = _POLLING_INTERVAL_S

    def drain_events(  # type: ignore[override]  # the stubs know no names of arguments
        self, connection: Any, timeout: float | None = None
    ) -> None:
        """Deliver one message, or raise `socket.timeout` soon, so that the worker can end."""
        _has_news.clear()
        try:
            cast(Any, self.cycle).get(self._deliver, timeout=timeout)
        except Empty:
            longest_s = _POLLING_INTERVAL_S
            _has_news.wait(longest_s if timeout is None else min(timeout, longest_s))
            raise TimeoutError from None


app = Celery("vinery")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
