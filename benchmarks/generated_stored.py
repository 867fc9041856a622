"""Made-up responses, conversations and chats, written by the database itself. Half of all belong to
the project `MANY`; those of `FEW` are the oldest. Their texts cannot be opened: see `seal`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Final

from django.core.management.color import no_style
from django.db import connection, models

from vinery_accounts.models import (
    ChatMetadata,
    Conversation,
    ConversationItem,
    ResponseItem,
    StoredBytes,
    StoredChat,
    StoredItem,
    StoredResponse,
)
from vinery_accounts.stored.chats import _digests
from vinery_accounts.stored.rows import sealed

MANY, FEW = 2, 21
_IN_A_CHAIN, _IN_A_CONVERSATION, _IN_A_RESPONSE = 10, 20, 3
_DAYS: Final = timedelta(days=29)
_SEALED: Final = b"x" * 400


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
        chats = StoredChat.objects.order_by("pk").values_list("pk", flat=True)
        for project in (*range(1, 20), FEW):
            digest, table = _digests(project, "app", "shop")[0], ChatMetadata._meta.db_table
            cursor.execute(
                f"INSERT INTO {table} (chat_id, digest) SELECT id, %s "
                f"FROM {StoredChat._meta.db_table} WHERE project_id = %s",
                [digest, project],
            )
            StoredBytes.objects.create(project_id=project, num_bytes=10**9)
        few = list(chats.filter(project_id=MANY)[1000:200_000:2000])
        digest = _digests(MANY, "run", "1")[0]
        ChatMetadata.objects.bulk_create(ChatMetadata(chat_id=pk, digest=digest) for pk in few)
        tables = [StoredItem, StoredResponse, Conversation, StoredChat]
        for sql in connection.ops.sequence_reset_sql(no_style(), tables):
            cursor.execute(sql)
        if is_postgresql:  # which does so by itself; nobody analyses SQLite
            cursor.execute("VACUUM ANALYZE")


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
