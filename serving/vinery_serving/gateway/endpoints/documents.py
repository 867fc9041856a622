"""Endpoints that answer `GET` with a JSON document: the version, the OpenAPI document, and the
limits of the calling key with usage and next resets."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Final

from django.conf import settings

from vinery_accounts.keys.table import Caller
from vinery_accounts.limits.reservations import Level, LimitsUnavailable
from vinery_accounts.limits.rules import Kind, Rule
from vinery_accounts.limits.service import scopes_of
from vinery_accounts.limits.windows import window_at
from vinery_accounts.models import Scope as KeyScope
from vinery_serving.core.errors import MethodNotAllowed, Unavailable
from vinery_serving.gateway.endpoints.callers import permitted_caller
from vinery_serving.gateway.endpoints.edge import JSON, App, Receive, Scope, Send, send_whole
from vinery_serving.gateway.state.runtime import Runtime
from vinery_serving.protocols.common.encoding import json_bytes
from vinery_serving.protocols.openapi import document

_PART_BYTES: Final = 8 * 1024  # bytes of a document that are sent in one pass of the event loop
# The thread starts with the first document.
_BUILDING: Final = ThreadPoolExecutor(1, thread_name_prefix="documents")


def document_of(read: Callable[[Scope], Awaitable[bytes]], allowed: str = "GET") -> App:
    """Return an application that answers with the result of `read`, or raises `ServingError`."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        is_head = scope["method"] == "HEAD"
        if not is_head and scope["method"] != "GET":
            raise MethodNotAllowed(scope["method"], allowed=allowed)
        body = await read(scope)
        if is_head or len(body) <= _PART_BYTES:
            await send_whole(send, 200, JSON, body, is_head=is_head)
        else:
            await _send_in_parts(send, body)

    return answer


async def _send_in_parts(send: Send, body: bytes) -> None:
    """Send a long body while other requests go on: any client may ask for many at once."""
    headers = [*JSON, (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    for start in range(0, len(body), _PART_BYTES):
        end = start + _PART_BYTES
        part = body[start:end]
        await send({"type": "http.response.body", "body": part, "more_body": end < len(body)})
        await asyncio.sleep(0)


def constant(build: Callable[[], bytes]) -> App:
    """Serve the same document to every client, without a key."""
    built: list[bytes] = []

    async def read(scope: Scope) -> bytes:
        if not built:
            built.append(await asyncio.get_running_loop().run_in_executor(_BUILDING, build))
        return built[0]

    return document_of(read, "GET, HEAD")


def version() -> bytes:
    """Return the version, in vLLM's format."""
    return json.dumps({"version": settings.VINERY_VERSION}).encode()


def openapi() -> bytes:
    """Return the OpenAPI document. The first call takes about 0.1 s."""
    max_body_mb = settings.VINERY_MAX_BODY_BYTES // 2**20
    contents = document(version=settings.VINERY_VERSION, max_body_mb=max_body_mb)
    return json.dumps(contents, ensure_ascii=False).encode()


def key_usage(runtime: Runtime) -> App:
    """Serve `{tree}/usage/me`, which needs a key."""

    async def read(scope: Scope) -> bytes:
        return json_bytes(await _usage(runtime, permitted_caller(runtime, scope, KeyScope.USAGE)))

    return document_of(read)


async def _usage(runtime: Runtime, caller: Caller) -> dict[str, object]:
    """The limits of the key, of the key's owners, and of the models that the key may use."""
    book = runtime.limits.book
    visible = runtime.directory.entries_of(caller.project_id)
    models = [f"model:{name}" for name in visible if caller.grants.allows_model(name)]
    rules = [rule for scope in (*scopes_of(caller), *models) for rule in book.rules_in(scope)]
    try:
        levels = await runtime.limits.levels(rules)
    except LimitsUnavailable:
        raise Unavailable("The limits cannot be read just now. Try again.") from None
    return {
        "object": "usage",
        "key": {"id": caller.key_id, "name": caller.key_name},
        "user": caller.username,
        "project": {"id": caller.project_id, "name": caller.project_name},
        "organization": {"id": caller.organization_id, "name": caller.organization_name},
        "limits": [_limit(level, time.time()) for level in levels],
    }


def _limit(level: Level, now_s: float) -> dict[str, object]:
    rule, reset_s = level.rule, level.reset_s
    resets_at = _resets_at(rule, reset_s, now_s)
    return {
        "id": rule.id,
        "scope": rule.scope_kind,
        "model": rule.owner if rule.scope_kind == "model" else None,
        "metric": rule.metric,
        "window": rule.window,
        "limit": rule.amount,
        "used": level.num_used,
        "remaining": max(0, level.num_remaining),
        "resets_in_s": reset_s,
        "resets_at": resets_at and resets_at.isoformat(),
        "time_zone": rule.time_zone,
        "week_start": rule.week_start,
        "is_shadow": rule.is_shadow,
    }


def _resets_at(rule: Rule, reset_s: float | None, now_s: float) -> datetime | None:
    if rule.kind is Kind.CALENDAR:
        # Exactly midnight: the sum of two clocks would be off by milliseconds.
        _, ends_ms = window_at(rule, round(now_s * 1000))
        return datetime.fromtimestamp(ends_ms / 1000, UTC)
    return None if reset_s is None else datetime.fromtimestamp(now_s + reset_s, UTC)
