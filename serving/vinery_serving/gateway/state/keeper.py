"""The writer of a web process for answers that are stored: answers that end meanwhile are stored
together in one transaction."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from django.db import Error, transaction

from vinery_accounts.base.errors import DATABASE_UNAVAILABLE
from vinery_accounts.stored import chats, responses
from vinery_accounts.stored.chats import NewChat
from vinery_accounts.stored.responses import NewResponse
from vinery_accounts.stored.rows import NotStored, check_keys, stored_bytes

NewAnswer = NewResponse | NewChat
Errors = list[Exception | None]
_IN_A_BATCH = 64


class Keeper:
    """Stores answers in the order in which they end."""

    def __init__(self, in_thread: Callable[[Callable[[], Errors]], Awaitable[Errors]]) -> None:
        self._in_thread = in_thread
        self._waiting: list[tuple[NewAnswer, asyncio.Future[None]]] = []
        self._task: asyncio.Task[None] | None = None
        self.num_bytes: dict[int | None, int] = {}  # that a project had stored last
        self.num_lost = 0  # answers that could not be stored

    async def keep(self, new: NewAnswer) -> None:
        """Returns when the answer is stored. Raises `NotStored` and `django.db.Error`."""
        stored = asyncio.get_running_loop().create_future()
        self._waiting.append((new, stored))
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._store_all(), name="keeper")
        await stored

    async def _store_all(self) -> None:
        while batch := self._waiting[:_IN_A_BATCH]:
            del self._waiting[: len(batch)]
            try:
                errors = await self._in_thread(partial(self._store, [new for new, _ in batch]))
            except Exception as failure:
                errors = [failure] * len(batch)
            self.num_lost += sum(error is not None for error in errors)
            for (_, stored), error in zip(batch, errors, strict=True):
                if stored.done():  # its request was cancelled
                    continue
                if error is None:
                    stored.set_result(None)
                else:
                    stored.set_exception(error)

    def _store(self, news: Sequence[NewAnswer]) -> Errors:
        """Store all in one transaction, or each in its own if that fails. In a thread. Raises
        `DATABASE_UNAVAILABLE`."""
        error = _error_of(news)
        errors = [None if error is None else _error_of([new]) for new in news]
        for project_id in {new.owner.project_id for new in news}:
            self.num_bytes[project_id] = stored_bytes(project_id)
        return errors


def _error_of(news: Sequence[NewAnswer]) -> Exception | None:
    """Store these in one transaction."""
    try:
        with transaction.atomic():
            check_keys(new.owner for new in news)
            for new in news:
                if isinstance(new, NewResponse):
                    responses.keep(new)
                else:
                    chats.keep(new)
    except DATABASE_UNAVAILABLE:
        raise
    except (Error, NotStored) as error:
        return error
    return None
