"""Headers of answers, which every name can be sent in, and documents for every client."""

import asyncio
import re
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import unquote

import h11
import pytest
from django.db import InterfaceError, OperationalError
from hypothesis import given
from hypothesis import strategies as st
from pytest_django import Settings

from tests.tables import table
from vinery_accounts.stored.rows import NotStored
from vinery_accounts.stored.runs import FoundEvents
from vinery_serving.core.errors import UnknownParameter, UnsupportedParameter
from vinery_serving.core.request import Unused
from vinery_serving.gateway.endpoints import background
from vinery_serving.gateway.endpoints.background import BackgroundRuns
from vinery_serving.gateway.endpoints.callers import authorization_of, organization_headers
from vinery_serving.gateway.endpoints.documents import constant
from vinery_serving.gateway.endpoints.edge import OWN_HEADERS
from vinery_serving.gateway.endpoints.notices import ignored, report_unused
from vinery_serving.gateway.state.traffic import Traffic
from vinery_serving.protocols.common.encoding import DONE, KEEP_ALIVE

names = st.text(st.characters(exclude_categories=["Cs"]), max_size=100)


@given(names)
def test_every_name_can_be_sent_and_read_again(name: str) -> None:
    answer = h11.Response(status_code=200, headers=list(organization_headers(name)))

    values = [value.decode() for _, value in answer.headers]
    assert all(value.isascii() and value.isprintable() for value in values)
    assert list(map(unquote, values)) == [name.strip()] * bool(name.strip())


@table(
    "headers, authorization",
    [
        ([], None),
        ([(b"authorization", b"Bearer a")], b"Bearer a"),
        ([(b"api-key", b"a")], b"Bearer a"),
        ([(b"x-api-key", b" a ")], b"Bearer a"),
        ([(b"x-api-key", b"b"), (b"api-key", b"a")], b"Bearer a"),
        ([(b"api-key", b"b"), (b"authorization", b"bearer a")], b"bearer a"),
        ([(b"authorization", b"Basic dTpw"), (b"api-key", b"a")], b"Bearer a"),
        ([(b"authorization", b"Bearer "), (b"api-key", b"a")], b"Bearer a"),
        ([(b"authorization", b"Basic dTpw"), (b"api-key", b"")], b"Basic dTpw"),
        ([(b"authorization", b"Bearer a"), (b"authorization", b"Bearer b")], b"Bearer a"),
    ],
)
def test_a_request_has_one_key_and_a_bearer_token_comes_first(
    headers: list[tuple[bytes, bytes]], authorization: bytes | None
) -> None:
    assert authorization_of(headers) == authorization


# -- Fields without effect


def reported(unused: Unused, *others: str, betas: bytes = b"") -> tuple[list[Any], dict[str, int]]:
    """The headers of the answer, and what was counted."""
    sent = [(b"anthropic-beta", betas)] if betas else []
    scope: dict[str, Any] = {OWN_HEADERS: [], "headers": sent}
    traffic = Traffic()
    report_unused(unused, scope, traffic, *others)
    return scope[OWN_HEADERS], dict(traffic.ignored)


UNFIT = ["a b", "a,b", "ü", "a\r\nx: y", "", "a" * 65, 'a"']
FIELDS = tuple(f"field{number}" for number in range(32))
ALL = Unused(("chat_id",), 1, ("keep_alive",), ("store", "tools.mcp"))


@table(
    "unused, others, value",
    [
        # Known fields that took no effect come before unknown fields.
        (ALL, ["model"], b"model, store, tools.mcp, keep_alive, chat_id"),
        # A name that is unfit for a header is only counted.
        *((Unused(("good", name), 2), [], b"good, +1 more") for name in UNFIT),
        # The header has at most sixteen names.
        (Unused(FIELDS, 1000), [], ", ".join([*FIELDS[:16], "+984 more"]).encode()),
    ],
)
def test_what_took_no_effect_is_a_header(unused: Unused, others: list[str], value: bytes) -> None:
    assert reported(unused, *others)[0] == [(b"x-vinery-ignored", value)]


def test_the_betas_of_a_client_are_named_with_the_fields_of_its_body() -> None:
    headers, counted = reported(Unused(("chat_id",), 1), betas=b"a-2025,b-2025")

    assert headers == [(b"x-vinery-ignored", b"anthropic-beta, chat_id")]
    assert counted == {"anthropic-beta": 1, "other": 1}


@given(st.lists(st.text(max_size=200), max_size=40))
def test_any_names_are_a_short_header(names: list[str]) -> None:
    value = ignored(names, len(names))

    h11.Response(status_code=200, headers=[("x-vinery-ignored", value)])
    assert value.isascii()
    assert len(value) < 2000


def test_known_names_are_their_own_labels_and_those_of_clients_are_one() -> None:
    known = Unused(("x",), 1, ("cache_control",), ("store", "tools.web_search", "tools.mine"))

    assert reported(known)[1] == {"cache_control": 1, "store": 1, "tools.web_search": 1, "other": 1}
    assert reported(Unused(("chat_id", "features"), 2))[1] == {"other": 1}
    assert reported(Unused()) == ([], {})


def test_a_strict_server_refuses_unknown_fields_or_what_only_openai_hosts(
    settings: Settings,
) -> None:
    unknown, hosted = Unused(("chat_id",), 1), Unused(hosted=("tools.web_search",))
    settings.VINERY_UNKNOWN_FIELDS = "refuse"
    with pytest.raises(UnknownParameter) as refused:
        reported(unknown)
    assert (refused.value.param, refused.value.code) == ("chat_id", "unknown_parameter")
    assert reported(hosted)[0]

    settings.VINERY_UNKNOWN_FIELDS, settings.VINERY_HOSTED_FEATURES = "ignore", "refuse"
    with pytest.raises(UnsupportedParameter) as unsupported:
        reported(hosted)
    assert unsupported.value.param == "tools.web_search"
    assert reported(unknown)[0]


# -- Documents for every client: long ones are sent in parts


_LONG = b"x" * 100_001


async def test_a_long_document_leaves_room_for_other_requests() -> None:
    parts: list[dict[str, Any]] = []
    seen: list[int] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        parts.append(message)

    document = constant(lambda: _LONG)
    sending = asyncio.create_task(document({"method": "GET"}, receive, send))
    while not sending.done():
        await asyncio.sleep(0)
        seen.append(len(parts))

    start, *bodies = parts
    assert (b"content-length", b"100001") in start["headers"]
    assert b"".join(each["body"] for each in bodies) == _LONG
    assert [each["more_body"] for each in bodies] == [True] * (len(bodies) - 1) + [False]
    assert max(after - before for before, after in pairwise(seen)) <= 2
    assert max(len(each["body"]) for each in bodies) <= 8192


# -- The event loop's default executor has few threads, so nothing of a client may run there

ROOT = Path(__file__).resolve().parents[3]
ROOMS = ("gateway", "prompting", "grammars")
_DEFAULT_EXECUTOR = re.compile(r"\bto_thread\(|run_in_executor\(\s*None|thread_sensitive=False")


def test_no_room_that_a_request_passes_uses_the_default_executor() -> None:
    files = [
        path for room in ROOMS for path in (ROOT / "serving/vinery_serving" / room).rglob("*.py")
    ]

    assert len(files) > 50
    assert [each for each in files if _DEFAULT_EXECUTOR.search(each.read_text())] == []


# -- Who follows a background response misses no event while the database is away


FRAMES = [b"event: %d\n\n" % number for number in range(5)]


def found(first: int, last: int, *, is_over: bool = False) -> FoundEvents:
    return FoundEvents(FRAMES[first:last], is_over, has_gone=False)


async def followed(monkeypatch: pytest.MonkeyPatch, answers: Iterator[Any]) -> list[bytes]:
    """What a follower of a run in another process gets, if the database answers so."""

    async def recall(_: Callable[[], Any]) -> Any:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(background, "_FOLLOW_INTERVAL_S", 0.0)
    monkeypatch.setattr(background, "SILENCE_S", 0.0)
    runs = BackgroundRuns(SimpleNamespace(recall=recall))  # type: ignore[arg-type]
    return [b"".join(each) async for each in runs.follow(1, "resp_1", -1)]


async def test_an_outage_of_the_database_is_silence_with_keep_alives(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    away = [OperationalError("away"), TimeoutError(), InterfaceError("closed")]
    answers = iter([found(0, 2), *away, found(2, 3), OperationalError(), found(3, 5, is_over=True)])

    assert await followed(monkeypatch, answers) == [
        *(b"".join(FRAMES[:2]), KEEP_ALIVE, KEEP_ALIVE, KEEP_ALIVE),
        *(FRAMES[2], KEEP_ALIVE, b"".join(FRAMES[3:]), DONE),
    ]


async def test_a_response_that_was_deleted_during_an_outage_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers = iter([found(0, 2), OperationalError(), NotStored("Response", "resp_1")])

    assert (await followed(monkeypatch, answers))[-2:] == [KEEP_ALIVE, DONE]
