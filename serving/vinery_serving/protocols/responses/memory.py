"""Stored items: from the input of a request to stored items, and back into the next request."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from pydantic import TypeAdapter

from vinery_serving.core.errors import InvalidRequest
from vinery_serving.core.memory import MemoryItem, Recalled
from vinery_serving.protocols.common.messages import PlainMessage
from vinery_serving.protocols.responses.input import (
    BuiltInOutput,
    CallOutput,
    CompactionItem,
    InputItem,
    ItemReference,
    ReplayedCall,
    Summary,
)

_ITEM: Final[TypeAdapter[InputItem]] = TypeAdapter(InputItem)
# The prefix of an item's id, by the type of the item.
_PREFIXES: Final[Mapping[str, str]] = {
    "message": "msg_",
    "reasoning": "rs_",
    "function_call": "fc_",
    "function_call_output": "fco_",
    "custom_tool_call": "ctc_",
    "custom_tool_call_output": "ctco_",
    "compaction": "cmp_",
}


class _Input(msgspec.Struct):
    input: Any = None


def memory_items(body: bytes) -> tuple[MemoryItem, ...]:
    """Return the items of a valid body as they are stored and shown: without ids, with the members
    that clients require. A trigger is not stored."""
    given = msgspec.json.decode(body, type=_Input).input
    items = [{"role": "user", "content": given}] if isinstance(given, str) else given or ()
    return tuple(memory_item(x) for x in items if x.get("type") != "compaction_trigger")


def memory_item(sent: Mapping[str, Any]) -> MemoryItem:
    kind = sent.get("type") or ("message" if "role" in sent else "item_reference")
    if kind == "item_reference":
        return MemoryItem(str(sent["id"]), kind)
    item = {name: value for name, value in sent.items() if name != "id"}
    item["type"] = kind
    if kind not in ("reasoning", "compaction"):
        item["status"] = item.get("status") or "completed"
    if kind == "message":
        content = item.get("content")
        if not isinstance(content, list):
            kind_of_text = "output_text" if item["role"] == "assistant" else "input_text"
            content = [{"type": kind_of_text, "text": content or ""}]
        item["content"] = list(map(_complete, content))
    return MemoryItem("", kind, msgspec.json.encode(item))


def _complete(part: Any) -> Any:
    if not isinstance(part, dict):
        return {"type": "input_text", "text": str(part)}
    match part.get("type"):
        case "output_text":
            return {"annotations": [], "logprobs": [], **part}
        case "input_image":
            return {"detail": "auto", **part}
    return part


def with_id(item: MemoryItem, token: str, index: int) -> MemoryItem:
    """Give a new item its id, which its payload names first."""
    if not item.payload or item.id:
        return item
    new = f"{_PREFIXES.get(item.kind, 'item_')}{token}i{index:02x}"
    return MemoryItem(new, item.kind, b'{"id":%b,%b' % (msgspec.json.encode(new), item.payload[1:]))


def joined(
    own: Sequence[InputItem], recalled: Recalled, compaction: bytes = b""
) -> list[InputItem | Summary]:
    """Return the recalled items, and then the request's own with what they refer to, or what a
    compaction among them has left, or `compaction` of all. Raises `InvalidRequest` for calls
    without outputs, and outputs without calls."""
    items: list[InputItem | Summary] = []
    for at, each in enumerate((*map(_read, recalled.items), *own), -len(recalled.items)):
        item = _referred(each, at, recalled) if isinstance(each, ItemReference) else each
        if isinstance(item, CompactionItem):
            _unfold(recalled.opened[item.encrypted_content], items)
        else:
            items.append(item)
    if compaction:
        _unfold(compaction, items)
    _check_calls(items)
    return items


def _read(item: MemoryItem) -> InputItem:
    return _ITEM.validate_python(msgspec.json.decode(item.payload))


class Compaction(msgspec.Struct):
    """The content of a compaction item. `kept` are messages of the user that the summary does not
    replace; None: they stand beside the item, which replaces nothing."""

    summary: str
    kept: list[dict[str, Any]] | None = None


def _unfold(compaction: bytes, items: list[InputItem | Summary]) -> None:
    """Replace the items before a compaction: instructions stay."""
    made = msgspec.json.decode(compaction, type=Compaction)
    if made.kept is not None:
        items[:] = [x for x in items if isinstance(x, PlainMessage) and x.role != "user"]
    items += [Summary(made.summary), *map(_ITEM.validate_python, made.kept or ())]


def user_items(body: bytes, recalled: Recalled) -> tuple[MemoryItem, ...]:
    """Return the messages of the user in the prompt of a valid body, without ids."""
    found: list[MemoryItem] = []
    for each in (*recalled.items, *memory_items(body)):
        item = msgspec.json.decode(recalled.referred.get(each.id, each).payload)
        if item["type"] == "compaction":
            made = msgspec.json.decode(recalled.opened[item["encrypted_content"]], type=Compaction)
            found = found if made.kept is None else list(map(memory_item, made.kept))
        elif item.get("role") == "user":
            found.append(memory_item(item))
    return tuple(found)


def _referred(reference: ItemReference, at: int, recalled: Recalled) -> InputItem:
    found = recalled.referred.get(reference.id)
    if found is None:
        raise InvalidRequest(
            f"Item with id '{reference.id[:128]}' not found. Items are not persisted when `store` "
            "is set to false. Try again with `store` set to true, or remove this item from your "
            "input.",
            param=f"input[{at}].id",
        )
    return _read(found)


def _check_calls(items: Sequence[InputItem | Summary]) -> None:
    calls = [each.known_id for each in items if isinstance(each, ReplayedCall)]
    called, answered = set(calls), dict[str, None]()
    for each in items:
        match each:
            case CallOutput(call_id=id_) | BuiltInOutput(known_id=id_):
                answered[id_] = None
    for id_ in answered:
        if id_ not in called:
            raise InvalidRequest(
                f"No tool call found for function call output with call_id {id_[:128]}.",
                param="input",
            )
    for id_ in calls:
        if id_ not in answered:
            raise InvalidRequest(
                f"No tool output found for function call {id_[:128]}.", param="input"
            )
