"""Made-up responses, conversations and chats, written by the database itself, and what is measured
over them. Half of all belong to the project `MANY`; those of `FEW` are the oldest. Their texts
cannot be opened: see `seal`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count
from typing import Any, Final

from django.core.management.color import no_style
from django.db import connection, models
from django.db.models import Q

from benchmarks.console_pages import getting, signed_in, write_owners
from benchmarks.databases import took_ms
from vinery_accounts.access.access import Access
from vinery_accounts.models import (
    ChatMetadata,
    Conversation,
    ConversationItem,
    Membership,
    Organization,
    Project,
    ResponseItem,
    Role,
    StoredBytes,
    StoredChat,
    StoredItem,
    StoredResponse,
    User,
)
from vinery_accounts.resources.stored import CHATS, CONVERSATIONS, RESPONSES
from vinery_accounts.stored import care, chats, conversations, responses
from vinery_accounts.stored.chats import _digests
from vinery_accounts.stored.responses import NewResponse
from vinery_accounts.stored.rows import Item, sealed
from vinery_accounts.usage.entries import Owners
from vinery_serving.gateway.memory import store

Measures = Iterator[tuple[str, float, Callable[[], object]]]

MANY, FEW = 2, 21
_IN_A_CHAIN, _IN_A_CONVERSATION, _IN_A_RESPONSE = 10, 20, 3
_DAYS: Final = timedelta(days=29)
_SEALED: Final = b"x" * 400
_ALLOWED_MS, _ALLOWED_TO_STORE_MS, _ALLOWED_CHAIN_MS = 50.0, 3.0, 20.0
_TURNS: Final = 200
_LIMIT: Final = 100  # objects of a page
_RUN: Final = f"{time.time():.0f}"


def write_stored(num_items: int) -> None:
    """Three quarters of the items are of responses in chains, the others of conversations, of
    which the first has a hundredth of all. There are a tenth as many chats."""
    num_responses, num_long, num_chats = num_items // 4, num_items // 100, num_items // 10
    of_responses = num_responses * _IN_A_RESPONSE
    at = f"n - {of_responses} - 1"
    other = f"2 + ({at} - {num_long}) / {_IN_A_CONVERSATION}"
    conversation = f"CASE WHEN {at} < {num_long} THEN 1 ELSE {other} END"
    num_conversations = 1 + (num_items - of_responses - num_long) // _IN_A_CONVERSATION
    of_chain = f"(n - 1) / {_IN_A_CHAIN}"
    with connection.cursor() as cursor:
        is_postgresql = connection.vendor == "postgresql"
        if is_postgresql:
            cursor.execute("SET session_replication_role = replica")
        else:
            cursor.execute("PRAGMA foreign_keys = OFF")
        _owned(StoredItem, "msg_", num_items, "n / 30", {"kind": "'message'"})
        previous = f"CASE WHEN (n - 1) %% {_IN_A_CHAIN} = 0 THEN NULL ELSE n - 1 END"
        ended = {"status": "'completed'", "model": "'m'", "request_id": "''", "expires_at": ""}
        more = {**ended, "previous_id": previous, "is_background": "n < 0"}
        _owned(StoredResponse, "resp_", num_responses, of_chain, more)
        place = f"(n - 1) %% {_IN_A_RESPONSE}"
        links = {"response_id": f"1 + (n - 1) / {_IN_A_RESPONSE}", "item_id": "n"}
        _insert(
            ResponseItem, 1, of_responses, {**links, "position": place, "is_output": f"{place} = 2"}
        )
        more = {"next_position": f"CASE WHEN n = 1 THEN {num_long} ELSE {_IN_A_CONVERSATION} END"}
        _owned(Conversation, "conv_", num_conversations, "n + 2", more)
        links = {"conversation_id": conversation, "item_id": "n", "position": "n"}
        _insert(ConversationItem, of_responses + 1, num_items, links)
        del ended["status"]
        _owned(StoredChat, "chatcmpl-", num_chats, "n", {**ended, "model": "'m' || (n %% 7)"})
        _insert(ChatMetadata, 1, num_chats, {"chat_id": "n", "digest": _unique()})
        _write_pairs()
        tables = [StoredItem, StoredResponse, Conversation, StoredChat]
        for sql in connection.ops.sequence_reset_sql(no_style(), tables):
            cursor.execute(sql)
        if is_postgresql:  # which does so by itself; nobody analyses SQLite
            cursor.execute("VACUUM ANALYZE")
    _write_owners()


def _write_pairs() -> None:
    """Pairs of metadata of chats: of most projects one that all chats have, and a rare one."""
    for project in (*range(1, 20), FEW):
        digest, table = _digests(project, "app", "shop")[0], ChatMetadata._meta.db_table
        with connection.cursor() as cursor:
            cursor.execute(
                f"INSERT INTO {table} (chat_id, digest) SELECT id, %s "
                f"FROM {StoredChat._meta.db_table} WHERE project_id = %s",
                [digest, project],
            )
        StoredBytes.objects.create(project_id=project, num_bytes=10**9)
    many = StoredChat.objects.filter(project_id=MANY).order_by("pk")
    few = list(many.values_list("pk", flat=True)[1000:200_000:2000])
    digest = _digests(MANY, "run", "1")[0]
    ChatMetadata.objects.bulk_create(ChatMetadata(chat_id=pk, digest=digest) for pk in few)


def _write_owners() -> None:
    write_owners()
    few = Organization.objects.create(pk=100, name="few")
    Project.objects.create(pk=FEW, name="few", organization=few)
    Membership.objects.create(pk=100, user_id=4, organization=few, role=Role.OWNER)


def seal(*tables: Any) -> None:
    """Give these rows texts that can be opened."""
    for rows in tables:
        for row in rows:
            row.sealed = sealed(row.public_id, b'{"content":"%b"}' % (b"Words. " * 50))
            row.save(update_fields=["sealed"])


def _unique() -> str:
    return "md5(n::text)" if connection.vendor == "postgresql" else "lower(hex(randomblob(16)))"


def _owned(
    table: type[models.Model], prefix: str, num: int, owner: str, more: dict[str, str]
) -> None:
    """`owner` is the number of a chain, a conversation or a chat."""
    project = f"CASE WHEN {owner} < 3 THEN {FEW} WHEN ({owner}) %% 2 = 1 THEN {MANY} "
    project += f"ELSE 1 + ({owner}) / 2 %% 19 END"
    since = datetime.now(UTC) - _DAYS
    step_s = _DAYS.total_seconds() / num

    def moment(days: int) -> str:
        begin = since + timedelta(days=days)
        if connection.vendor == "postgresql":
            return f"to_timestamp({begin.timestamp()} + n * {step_s})"
        text = "'%%Y-%%m-%%d %%H:%%M:%%f'"
        return f"strftime({text}, {begin.timestamp()} + n * {step_s}, 'unixepoch')"

    if "expires_at" in more:
        more = {**more, "expires_at": moment(30)}
    columns = {
        "id": "n",
        "public_id": f"'{prefix}' || {_unique()}",
        "project_id": project,
        "user_id": f"1 + ({owner}) %% 100",
        "key_id": "1",
        "created_at": moment(0),
        "num_bytes": "400",
        "sealed": "%s",
    }
    _insert(table, 1, num, {**columns, **more}, [_SEALED])


def _insert(
    table: type[models.Model],
    first: int,
    last: int,
    columns: dict[str, str],
    parameters: list[Any] | None = None,
) -> None:
    series = f"generate_series({first}, {last}) AS numbers (n)"
    if connection.vendor == "sqlite":
        numbers = f"SELECT {first} UNION ALL SELECT n + 1 FROM numbers WHERE n < {last}"
        series = f"(WITH RECURSIVE numbers (n) AS ({numbers}) SELECT n FROM numbers)"
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO {table._meta.db_table} ({', '.join(columns)}) "
            f"SELECT {', '.join(columns.values())} FROM {series}",
            parameters or [],
        )


# -- What is measured


def measures() -> Measures:
    """Yield the name of each work, the milliseconds that it may take, and the work. A "!" before
    the name is of work that can be done only once."""
    for of_kind in (_store, _reads_of_responses, _reads_of_conversations, _reads_of_chats):
        yield from of_kind()
    yield from _lists()
    yield "!a sweep that finds nothing, the first", 1000, lambda: care.sweep(datetime.now(UTC))
    yield "a sweep that finds nothing", _ALLOWED_MS, lambda: care.sweep(datetime.now(UTC))
    for table, of in ((StoredResponse, responses), (StoredChat, chats)):
        old = list(table.objects.of(MANY).order_by("pk").values_list("pk", flat=True)[:2000])
        table.objects.filter(pk__in=old).update(expires_at=datetime.now(UTC))
        work = partial(of.remove_all, Q(expires_at__lte=datetime.now(UTC)))
        yield f"!remove 2000 {table._meta.verbose_name_plural}, by group", 60_000, work


def _new_response(number: int) -> NewResponse:
    def item(kind: str, role: bytes) -> Item:
        id_ = f"msg_{_RUN}_{kind}_{number}"
        text = b'"content":[{"type":"text","text":"%b"}]' % (b"Words of an answer. " * 20)
        return Item(id_, "message", b'{"id":"%b","role":"%b",%b}' % (id_.encode(), role, text))

    return NewResponse(
        owner=Owners(project_id=MANY, user_id=1, key_id=1),
        public_id=f"resp_{_RUN}_{number}",
        status="completed",
        model="tiny-chat",
        request_id=f"req_{number}",
        created_at=datetime.now(UTC),
        days=30,
        payload=b'{"object":"response","output":[]}',
        inputs=(item("in", b"user"),),
        outputs=(item("out", b"assistant"), item("more", b"assistant")),
        previous_id=f"resp_{_RUN}_{number - 1}" if number else None,
    )


def _store() -> Measures:
    times_ms = sorted(took_ms(partial(store, _new_response(each))) for each in range(_TURNS))
    typical, last = times_ms[_TURNS // 2], times_ms[-_TURNS // 20]
    print(f"store a response: median {typical:.1f} ms, 95 % within {last:.1f} ms")
    numbers = count(_TURNS)
    work = lambda: store(_new_response(next(numbers)))  # noqa: E731
    yield "store a response, best of 5", _ALLOWED_TO_STORE_MS, work


def _reads_of_responses() -> Measures:
    last = f"resp_{_RUN}_{_TURNS - 1}"
    yield "context of 200 turns", _ALLOWED_CHAIN_MS, partial(responses.context, MANY, last)
    yield "GET a response", _ALLOWED_MS, partial(responses.find, MANY, last)
    of_last = partial(responses.input_items, MANY, last, limit=_LIMIT)
    newest = partial(of_last, after=None, is_descending=True)
    yield "input items of 200 turns, newest first", _ALLOWED_MS, newest
    oldest = partial(of_last, after=f"msg_{_RUN}_in_100", is_descending=False)
    yield "input items of 200 turns, after 300, oldest first", _ALLOWED_MS, oldest
    owned = StoredResponse.objects.of(MANY).order_by("pk")
    row = owned[len(owned[:2000]) - 1]
    seal([row], [each.item for each in row.links.all()])
    yield "GET an old response", _ALLOWED_MS, partial(responses.find, MANY, row.public_id)


def _reads_of_conversations() -> Measures:
    long = Conversation.objects.order_by("pk")[0]
    links = ConversationItem.objects.filter(conversation=long).order_by("position")
    num = links.count()
    half = num // 2
    middle = links[half].item.public_id
    for name, after, is_descending, first in (
        ("newest", None, True, num - 101),
        ("oldest", None, False, 0),
        ("older than the middle", middle, True, half - 101),
        ("newer than the middle", middle, False, half),
    ):
        found = list(links.values_list("item", flat=True)[max(0, first) :][:110])
        seal(StoredItem.objects.filter(pk__in=found))
        asked: Any = {"limit": _LIMIT, "after": after, "is_descending": is_descending}
        work = partial(conversations.items, MANY, long.public_id, **asked)
        yield f"a conversation of {num:,} items: {name}", _ALLOWED_MS, work
    item = links[0].item.public_id
    find = partial(conversations.find_item, MANY, long.public_id, item)
    yield "an item of it", _ALLOWED_MS, find


def _reads_of_chats() -> Measures:
    of_project = StoredChat.objects.of(MANY).order_by("created_at", "pk")
    half = of_project[of_project.count() // 2]
    usual: dict[str, Any] = {"model": None, "metadata": {}, "after": None, "is_descending": False}
    asked: Mapping[str, Mapping[str, Any]] = {
        "oldest": {},
        "newest": {"is_descending": True},
        "after the middle": {"after": half.public_id},
        "before the middle": {"after": half.public_id, "is_descending": True},
        "of a model": {"model": "m3"},
        "of no model": {"model": "none"},
        "with metadata of all": {"metadata": {"app": "shop"}},
        "with metadata of all, newest": {"metadata": {"app": "shop"}, "is_descending": True},
        "with metadata of few": {"metadata": {"run": "1"}},
        "with metadata of few and of all": {"metadata": {"run": "1", "app": "shop"}},
        "with metadata of few, newest, of a model": {
            "metadata": {"run": "1"}, "is_descending": True, "model": "m3"
        },
        "with metadata of none": {"metadata": {"app": "none"}},
    }  # fmt: skip
    for name, given in asked.items():
        work = partial(_page_of_chats, **{**usual, **given})
        yield f"a page of {of_project.count():,} chats: {name}", _ALLOWED_MS, work


def _page_of_chats(**asked: Any) -> None:
    """The texts of made-up chats cannot be opened; their rows are read all the same."""
    with suppress(ValueError):
        chats.page(MANY, limit=_LIMIT, **asked)


def _lists() -> Measures:
    id_ = StoredResponse.objects.order_by("pk")[1000].public_id
    for reader, number in {"": 10_000, ", an owner": 1, ", an owner of few": 4}.items():
        user = User.objects.get(pk=number)
        client = signed_in(user)
        queries = ["", "page=2", f"user_id={number}"]
        queries += [f"project_id={MANY}", f"project_id={FEW}", f"project_id={FEW}&user_id=2"]
        of_api = ("", f"?project_id={MANY}", "?to=2020-01-01T00:00Z")
        for path in (each.path for each in (RESPONSES, CONVERSATIONS, CHATS)):
            for query in queries if not reader else queries[:2]:
                work = getting(client, f"/console/{path}/?{query}")
                yield f"console {path} {query}{reader}", _ALLOWED_MS, work
            for query in of_api:
                work = getting(client, f"/api/{path}/{query}")
                yield f"API {path} {query}{reader}", _ALLOWED_MS, work
        rows = RESPONSES.rows(Access.of(user)).filter(public_id=id_)
        yield f"find a response by its id{reader}", _ALLOWED_MS, partial(_read, rows)


def _read(rows: Any) -> object:
    return list(rows.all())
