"""Stored responses, conversations and chats. Who may decide about captured texts sees them."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from django.core.exceptions import ValidationError
from django.db.models import Count, F, QuerySet, Sum
from django.utils import timezone
from rest_framework import serializers

from vinery_accounts.access import audit
from vinery_accounts.access.access import Access
from vinery_accounts.models import Conversation, Project, StoredChat, StoredResponse, User
from vinery_accounts.models.stored import OBJECTS, OwnedRow, in_groups
from vinery_accounts.resources import fields
from vinery_accounts.resources.base import Conflict, Resource, RowAction, columns_of, require
from vinery_accounts.resources.fields import DatedFilters, StrictSerializer
from vinery_accounts.stored import chats, compactions, conversations, responses
from vinery_accounts.stored.rows import NotStored

RowT = TypeVar("RowT", bound=OwnedRow)


def read_items(row: OwnedRow) -> list[Any]:
    """Return what was said up to the end of a row: items or messages as JSON. Writes an entry of
    the audit log. Raises `Conflict` for texts under a key that is no longer configured."""
    with audit.writing():
        try:
            found = _items(row, row.project_id, row.public_id)
        except ValueError:
            text = "The texts cannot be read: the server's secret key has changed."
            raise Conflict(text) from None
        except NotStored as gone:
            raise Conflict(str(gone)) from None
        audit.record("read", row)
    return found


def _items(row: OwnedRow, *named: Any) -> list[Any]:
    if isinstance(row, StoredChat):
        texts = chats.find(*named)
        answers = [each["message"] for each in json.loads(texts.completion)["choices"]]
        return [*json.loads(texts.messages), *answers]
    read = responses.thread if isinstance(row, StoredResponse) else conversations.context
    return [_with_summary(json.loads(each.payload), row.project_id) for each in read(*named)]


def _with_summary(item: Any, project_id: int | None) -> Any:
    """A compaction has what it says beside what it is for clients."""
    if item["type"] == compactions.KIND:
        item["summary"] = compactions.read_summary(project_id, item["encrypted_content"])
    return item


class Turn(NamedTuple):
    """What a page shows: `who` is the role, or what it is; `name` and `output` are of calls."""

    who: str
    text: str
    name: str = ""
    output: str = ""


def turns(items: Sequence[Any]) -> list[Turn]:
    """Return items, or messages of a chat, as a page shows them: outputs stand with their calls."""
    outputs = {
        id_: _text(each.get("output", each.get("content")))
        for each in items
        if (id_ := _answered(each))
    }
    return [turn for each in items if not _answered(each) for turn in _turns(each, outputs)]


def _answered(item: Any) -> str | None:
    is_output = str(item.get("type")).endswith("_output") or item.get("role") == "tool"
    found: str | None = item.get("call_id") or item.get("tool_call_id")
    return found if is_output else None


def _turns(item: Any, outputs: Mapping[str, str]) -> Iterator[Turn]:
    kind = str(item.get("type") or "message")
    if kind == "reasoning":
        yield Turn(kind, _text(item.get("content") or item.get("summary")))
    elif kind == compactions.KIND:
        yield Turn(kind, item["summary"])
    elif kind == "message":
        if reasoning := item.get("reasoning_content") or item.get("reasoning"):
            yield Turn("reasoning", _text(reasoning))
        if text := _text(item.get("content")):
            yield Turn(str(item.get("role")), text)
        for call in item.get("tool_calls") or ():
            asked, output = call.get("function") or {}, outputs.get(call.get("id"), "")
            yield Turn("call", str(asked.get("arguments", "")), str(asked.get("name")), output)
    elif kind.endswith("_call"):
        asked = item.get("arguments", item.get("input", item.get("action", "")))
        name, output = str(item.get("name") or kind), outputs.get(item.get("call_id"), "")
        yield Turn("call", _text(asked), name, output)
    else:
        yield Turn(kind, _text(item))


def _text(content: Any) -> str:
    match content:
        case None:
            return ""
        case str():
            return content
        case list():
            return "\n".join(map(_text, content))
        case {"text": str(text)} | {"refusal": str(text)}:
            return text
        case {"type": str(kind)} if kind.startswith(("input_", "image_", "file")):
            return f"[{kind.removeprefix('input_').replace('_', ' ')}]"
    return json.dumps(content, indent=1, ensure_ascii=False)


def _with_items(serializer: type[Any]) -> type[Any]:
    def to_representation(self: Any, row: Any) -> Any:
        return {**serializer(row).data, "items": read_items(row)}

    items = serializers.ListField(child=serializers.JSONField(), help_text="What was said.")
    meta = type("Meta", (serializer.Meta,), {"fields": [*serializer.Meta.fields, "items"]})
    members = {"items": items, "Meta": meta, "to_representation": to_representation}
    about = "With what was said. Reading it is an entry of the audit log."
    name = f"{serializer.__name__.removesuffix('Serializer')}WithItemsSerializer"
    return type(name, (serializer,), {**members, "__doc__": about})


class StoredObjects(Resource[RowT]):
    """Lists are without texts."""

    lookup = ("public_id", "[0-9A-Za-z_-]{1,80}")
    filters = DatedFilters.of(
        project_id=fields.id_filter("a project"), user_id=fields.id_filter("a user")
    )
    # With the bounds of times: both are of an index.
    ordering = ("-created_at",)
    verbs = frozenset({"remove"})
    search = ("public_id__exact",)
    page_filters = ("project_id", "user_id")

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.answers = {"retrieve": _with_items(cls.serializer)}
        removal = f"Delete {cls.one} now, and what nothing else needs of it within a minute."
        cls.help = {"remove": removal}

    def rows(self, access: Access) -> QuerySet[RowT]:
        rows: Any = super().rows(access)
        kept: QuerySet[RowT] = rows.kept().defer("sealed")
        return kept

    def extra_columns(self, rows: Sequence[RowT]) -> Sequence[Mapping[str, Any]]:
        projects = Project.objects.select_related("organization")
        names = projects.in_bulk({each.project_id for each in rows if each.project_id})
        users = User.objects.in_bulk({each.user_id for each in rows if each.user_id})
        counted: dict[int, dict[str, int]] = {}
        if hasattr(self.model, "links"):
            found = self.model.objects.filter(pk__in=[each.pk for each in rows]).order_by()
            size = F("num_bytes") + Sum("links__item__num_bytes", default=0)
            sums = found.annotate(num=Count("links"), size=size).values_list("pk", "num", "size")
            counted = {pk: {"items": num, "bytes": size} for pk, num, size in sums}
        return [
            {
                "project": str(names.get(each.project_id or 0, "")),
                "user": str(users.get(each.user_id or 0, "")),
                **counted.get(each.pk, {}),
            }
            for each in rows
        ]

    def remove(self, access: Access, row: RowT) -> None:
        require(access, self.removal, row)
        with audit.writing():
            audit.record("delete", row, before=audit.snapshot(row))
            rows: Any = type(row)._default_manager
            rows.filter(pk=row.pk).update(expires_at=timezone.now())


class ForgetSerializer(StrictSerializer):
    """Whose stored responses, conversations and chats are deleted."""

    project_id = fields.id_filter("a project")
    user_id = fields.id_filter("a user")

    def validate(self, values: dict[str, Any]) -> dict[str, Any]:
        if not values:
            raise ValidationError({"project_id": "Name a project, a user, or both."})
        return values


class ForgottenSerializer(StrictSerializer):
    """How many responses, conversations and chats were deleted."""

    num_deleted = serializers.IntegerField()


def forget(access: Access, **owner: int) -> dict[str, int]:
    """Delete all that is stored for a project, a user, or a user in a project, as far as the caller
    sees it. Raises ValidationError for an owner that the caller does not see."""
    tables: dict[str, type[Any]] = {"project_id": Project, "user_id": User}
    now, named = timezone.now(), []
    with audit.writing():
        for name, pk in owner.items():
            if (row := access.rows(tables[name]).filter(pk=pk).first()) is None:
                raise ValidationError({name: f"There is no {name.removesuffix('_id')} of this id."})
            named.append(row)
        seen: list[Any] = [access.rows(table) for table in OBJECTS]
        found = [rows.filter(**owner).kept(now) for rows in seen]
        num = sum(rows.count() for rows in found)
        for row in named:
            audit.record("forget", row, after={"num_deleted": num})
    for rows in found:
        in_groups(rows, expires_at=now)
    return {"num_deleted": num}


class StoredResponses(StoredObjects[StoredResponse]):
    """Responses that clients can continue. A response is read with what came before it."""

    model = StoredResponse
    path, title = "stored-responses", "Stored responses"
    field_names = (
        "id public_id created_at expires_at project_id user_id key_id model status request_id "
        "num_bytes is_background"
    )
    one, many = "a stored response", "stored responses"
    empty_text = "No response is stored. Each project sets how many days its responses are kept."
    columns = columns_of(
        "created=created_at name=public_id project user=user_id model items=links "
        "bytes=num_bytes expires=expires_at"
    )
    actions = (
        RowAction(
            "forget",
            forget,
            "Delete all responses, conversations and chats of a project or a user. They cannot be "
            "found from then on, and are removed within minutes.",
            serializer=ForgetSerializer,
            answer=ForgottenSerializer,
            is_of_list=True,
        ),
    )


class Conversations(StoredObjects[Conversation]):
    """Conversations of clients. They have no term, and stay until they are deleted."""

    model = Conversation
    path, title = "conversations", "Conversations"
    field_names = "id public_id created_at project_id user_id key_id num_bytes"
    one, many = "a conversation", "conversations"
    empty_text = "No conversation is stored. Clients create them, such as agents."
    columns = columns_of(
        "created=created_at name=public_id project user=user_id items=links bytes=num_bytes"
    )


class StoredChats(StoredObjects[StoredChat]):
    """Chat completions that clients have stored."""

    model = StoredChat
    path, title = "stored-chats", "Stored chats"
    field_names = (
        "id public_id created_at expires_at project_id user_id key_id model request_id num_bytes"
    )
    one, many = "a stored chat", "stored chats"
    empty_text = "No chat completion is stored. Clients ask for it with store: true."
    columns = columns_of(
        "created=created_at name=public_id project user=user_id model bytes=num_bytes "
        "expires=expires_at"
    )


RESPONSES: Final = StoredResponses()
CONVERSATIONS: Final = Conversations()
CHATS: Final = StoredChats()
