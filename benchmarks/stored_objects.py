"""`python -m benchmarks.stored_objects`: stored responses, conversations and chats in full tables.

Fills a new SQLite file, and a new PostgreSQL server if this machine has PostgreSQL, and measures
what clients, pages and sweeps do. Times are of processors: of this process, and of PostgreSQL's.
Ends with 1 when something takes longer than it may.
"""

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from benchmarks.databases import is_in_time, on_each_database, set_up_django, took_ms
from benchmarks.machine import show

_ALLOWED_MS = 50.0
_ALLOWED_TO_STORE_MS = 3.0
_ALLOWED_CHAIN_MS = 20.0
_TURNS = 200
_LIMIT = 100  # objects of a page
_REPEATS = 5

Work = Callable[[], object]
Measures = Iterator[tuple[str, float, Work]]


def main(argv: list[str] | None = None) -> int:
    arguments = _arguments(argv)
    if arguments.here:
        return _measure(int(arguments.items))
    return max(on_each_database("benchmarks.stored_objects", sys.argv[1:]))


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.stored_objects")
    parser.add_argument("--items", type=float, default=10e6, help="default: 10 million")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args(argv)


def _measure(num_items: int) -> int:
    set_up_django()
    from django.db import connection

    from benchmarks.generated_stored import write_stored
    from vinery_accounts.models import StoredItem

    if not StoredItem.objects.exists():
        show(f"{connection.vendor}: writing {num_items:,} items")
        write_stored(num_items)
        _write_owners()
    print(f"\n{connection.vendor}, {StoredItem.objects.count():,} items\n")
    is_met = True
    reads = (_reads_of_responses, _reads_of_conversations, _reads_of_chats)
    for measures in (_store, *reads, _lists, _sweeps):
        for name, allowed_ms, work in measures():
            num_times = 1 if name.startswith("!") else _REPEATS
            is_met = is_in_time(name.removeprefix("!"), work, allowed_ms, num_times) and is_met
    return 0 if is_met else 1


# -- What is measured


def _owner() -> Any:
    from benchmarks.generated_stored import MANY
    from vinery_accounts.usage.entries import Owners

    return Owners(project_id=MANY, user_id=1, key_id=1)


def _new_response(number: int) -> Any:
    from datetime import UTC, datetime

    from vinery_accounts.stored.responses import NewResponse
    from vinery_accounts.stored.rows import Item

    def item(kind: str, role: str) -> Item:
        id_ = f"msg_{_RUN}_{kind}_{number}"
        text = b'"content":[{"type":"text","text":"%b"}]' % (b"Words of an answer. " * 20)
        return Item(
            id_, "message", b'{"id":"%b","role":"%b",%b}' % (id_.encode(), role.encode(), text)
        )

    return NewResponse(
        owner=_owner(),
        public_id=f"resp_{_RUN}_{number}",
        status="completed",
        model="tiny-chat",
        request_id=f"req_{number}",
        created_at=datetime.now(UTC),
        days=30,
        payload=b'{"object":"response","output":[]}',
        inputs=(item("in", "user"),),
        outputs=(item("out", "assistant"), item("more", "assistant")),
        previous_id=f"resp_{_RUN}_{number - 1}" if number else None,
    )


_RUN = f"{time.time():.0f}"


def _store() -> Measures:
    from vinery_serving.gateway.memory import store

    times_ms = sorted(took_ms(partial(store, _new_response(each))) for each in range(_TURNS))
    typical, last = times_ms[_TURNS // 2], times_ms[-_TURNS // 20]
    print(f"store a response: median {typical:.1f} ms, 95 % within {last:.1f} ms")
    numbers = iter(range(_TURNS, 10 * _TURNS))
    yield (
        "store a response, best of 5",
        _ALLOWED_TO_STORE_MS,
        lambda: store(_new_response(next(numbers))),
    )


def _reads_of_responses() -> Measures:
    from benchmarks.generated_stored import MANY, seal
    from vinery_accounts.models import StoredResponse
    from vinery_accounts.stored import responses

    last = f"resp_{_RUN}_{_TURNS - 1}"
    yield "context of 200 turns", _ALLOWED_CHAIN_MS, partial(responses.context, MANY, last)
    yield "GET a response", _ALLOWED_MS, partial(responses.find, MANY, last)
    asked: Any
    for name, asked in {
        "newest first": {"after": None, "is_descending": True},
        "after 300, oldest first": {"after": f"msg_{_RUN}_in_100", "is_descending": False},
    }.items():
        work = partial(responses.input_items, MANY, last, limit=_LIMIT, **asked)
        yield f"input items of 200 turns, {name}", _ALLOWED_MS, work
    owned = StoredResponse.objects.of(MANY).order_by("pk")
    row = owned[len(owned[:2000]) - 1]
    seal([row], [each.item for each in row.links.all()])
    yield "GET an old response", _ALLOWED_MS, partial(responses.find, MANY, row.public_id)


def _reads_of_conversations() -> Measures:
    from benchmarks.generated_stored import MANY
    from vinery_accounts.models import Conversation, ConversationItem
    from vinery_accounts.stored import conversations

    long = Conversation.objects.order_by("pk")[0]
    links = ConversationItem.objects.filter(conversation=long).order_by("position")
    num = links.count()
    middle = links[num // 2].item.public_id
    asked: Any
    for name, asked in {
        "newest": {"after": None, "is_descending": True},
        "oldest": {"after": None, "is_descending": False},
        "older than the middle": {"after": middle, "is_descending": True},
        "newer than the middle": {"after": middle, "is_descending": False},
    }.items():
        work = partial(conversations.items, MANY, long.public_id, limit=_LIMIT, **asked)
        _seal_page(links, num, asked)
        yield f"a conversation of {num:,} items: {name}", _ALLOWED_MS, work
    yield (
        "an item of it",
        _ALLOWED_MS,
        partial(conversations.find_item, MANY, long.public_id, links[0].item.public_id),
    )


def _reads_of_chats() -> Measures:
    from benchmarks.generated_stored import MANY
    from vinery_accounts.models import StoredChat
    from vinery_accounts.stored import chats

    of_project = StoredChat.objects.of(MANY).order_by("created_at", "pk")
    half = of_project[of_project.count() // 2]
    asked_chats: Mapping[str, Mapping[str, Any]] = {
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
    for name, given in asked_chats.items():
        usual: dict[str, Any] = {
            "model": None,
            "metadata": {},
            "after": None,
            "is_descending": False,
        }
        work = partial(_chats, chats.page, MANY, limit=_LIMIT, **{**usual, **given})
        yield f"a page of {of_project.count():,} chats: {name}", _ALLOWED_MS, work


def _chats(page: Callable[..., Any], project: int, **asked: Any) -> object:
    """The texts of made-up chats cannot be opened; their rows are read all the same."""
    with suppress(ValueError):
        return page(project, **asked)
    return None


def _seal_page(links: Any, num: int, asked: Mapping[str, Any]) -> None:
    from benchmarks.generated_stored import seal
    from vinery_accounts.models import StoredItem

    first = 0 if not asked["after"] else num // 2
    if asked["is_descending"]:
        first = max(0, (first or num) - 101)
    found = list(links.values_list("item", flat=True)[first : first + 110])
    seal(StoredItem.objects.filter(pk__in=found))


def _write_owners() -> None:
    from benchmarks import console_pages
    from benchmarks.generated_stored import FEW
    from vinery_accounts.models import Membership, Organization, Project, Role

    console_pages.write_owners()
    other = Organization.objects.create(pk=100, name="few")
    Project.objects.create(pk=FEW, name="few", organization=other)
    Membership.objects.create(pk=100, user_id=4, organization=other, role=Role.OWNER)


def _lists() -> Measures:
    from benchmarks import console_pages
    from benchmarks.generated_stored import FEW, MANY
    from vinery_accounts.access.access import Access
    from vinery_accounts.models import StoredResponse, User
    from vinery_accounts.resources.stored import CHATS, CONVERSATIONS, RESPONSES

    id_ = StoredResponse.objects.order_by("pk")[1000].public_id
    for reader, number in {"": 10_000, ", an owner": 1, ", an owner of few": 4}.items():
        user = User.objects.get(pk=number)
        client = console_pages._signed_in(user)
        queries = ["", "page=2", f"user_id={number}"]
        queries += [f"project_id={MANY}", f"project_id={FEW}", f"project_id={FEW}&user_id=2"]
        for resource in (RESPONSES, CONVERSATIONS, CHATS):
            for query in queries if not reader else queries[:2]:
                address = f"/console/{resource.path}/?{query}"
                work = console_pages._getting(client, address)
                yield f"console {resource.path} {query}{reader}", _ALLOWED_MS, work
            for query in ("", f"?project_id={MANY}", "?to=2020-01-01T00:00Z"):
                address = f"/api/{resource.path}/{query}"
                work = console_pages._getting(client, address)
                yield f"API {resource.path} {query}{reader}", _ALLOWED_MS, work
        rows = RESPONSES.rows(Access.of(user)).filter(public_id=id_)
        yield f"find a response by its id{reader}", _ALLOWED_MS, partial(_read, rows)


def _read(rows: Any) -> object:
    return list(rows.all())


def _sweeps() -> Measures:
    from datetime import UTC, datetime

    from django.db.models import Q

    from benchmarks.generated_stored import MANY
    from vinery_accounts.models import StoredChat, StoredResponse
    from vinery_accounts.stored import care, chats, responses

    yield "!a sweep that finds nothing, the first", 1000, lambda: care.sweep(datetime.now(UTC))
    yield "a sweep that finds nothing", _ALLOWED_MS, lambda: care.sweep(datetime.now(UTC))
    for table, of in ((StoredResponse, responses), (StoredChat, chats)):
        old = list(table.objects.of(MANY).order_by("pk").values_list("pk", flat=True)[:2000])
        table.objects.filter(pk__in=old).update(expires_at=datetime.now(UTC))
        work = partial(of.remove_all, Q(expires_at__lte=datetime.now(UTC)))
        yield f"!remove 2000 {table._meta.verbose_name_plural}, by group", 60_000, work


if __name__ == "__main__":
    sys.exit(main())
