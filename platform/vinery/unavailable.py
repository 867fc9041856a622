"""What of Django is answered while the database is away: 503 at once, for people and programs.

A page would wait for a connection, and hold a thread, to say the same. What needs no database
goes on: models, static files, health. Where nobody has noticed yet, the page that meets it
raises, and `vinery.errors` says the same as here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from asgiref.sync import iscoroutinefunction
from django.http import HttpRequest, HttpResponse
from django.utils.decorators import sync_and_async_middleware

from vinery.errors import DatabaseAway, database_away

_NEED_DATABASE: Final = ("/admin", "/accounts", "/console", "/api/")

# Told by the process that watches the database; in all others pages find out by themselves.
_is_away: list[Callable[[], bool]] = []


def ask_whether_away(ask: Callable[[], bool] | None) -> None:
    """From now on this says whether the database is away; with None nobody does."""
    _is_away[:] = [] if ask is None else [ask]


@sync_and_async_middleware
def database_middleware(get_response: Callable[..., Any]) -> Callable[..., Any]:
    """For the list of middleware, before that of sessions."""
    if iscoroutinefunction(get_response):

        async def answer_async(request: HttpRequest) -> HttpResponse:
            if _is_in_vain(request):
                return _with_advice(database_away(request))
            return _with_advice(await get_response(request))

        return answer_async

    def answer(request: HttpRequest) -> HttpResponse:
        if _is_in_vain(request):
            return _with_advice(database_away(request))
        return _with_advice(get_response(request))

    return answer


def _is_in_vain(request: HttpRequest) -> bool:
    needs_it = request.path == "/" or request.path.startswith(_NEED_DATABASE)
    return needs_it and bool(_is_away) and _is_away[0]()


def _with_advice(response: HttpResponse) -> HttpResponse:
    if response.status_code == 503:
        response.headers.setdefault("Retry-After", str(DatabaseAway.retry_after_s))
    return response
