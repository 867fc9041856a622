"""The members of turns, blocks and tools that take no effect, and the types of blocks that are
refused.

Anthropic's API refuses members that it does not know, so its clients keep no data of their own in
messages, as OpenAI's do. What is left over here is worth a report.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar, Final

from pydantic import ConfigDict
from pydantic_core import PydanticCustomError

from vinery_serving.core.unused import Unused
from vinery_serving.protocols.common.body_fields import unused_of
from vinery_serving.protocols.common.reading import Wire, invalid, missing, unsupported


class Reported(Wire):
    """Base of the wire models whose other members are reported."""

    model_config = ConfigDict(extra="allow")

    # The members that Anthropic documents and that cannot change the answer. The prefix cache
    # finds equal starts of prompts itself.
    harmless: ClassVar[frozenset[str]] = frozenset({"cache_control"})
    # Whether the model gets nothing of it.
    is_left_out: ClassVar[bool] = False

    def others(self, path: str) -> Iterator[tuple[str, bool]]:
        """Yield the paths of the members that take no effect, also of those inside, and whether
        each is harmless."""
        if self.is_left_out:
            yield f"{path}.{getattr(self, 'type', '')}", True
        for name, value in (self.model_extra or {}).items():
            if value is not None:
                yield f"{path}.{name}", name in self.harmless
        for name in type(self).model_fields:
            yield from _others_in(getattr(self, name), f"{path}.{name}")


def unused_members(fields: Mapping[str, Sequence[Reported] | None]) -> Unused:
    """Return the members of these fields that take no effect: each name once, without indices."""
    found = dict(
        other for name, values in fields.items() for other in _others_in(values or (), name)
    )
    unknown = [name for name, is_harmless in found.items() if not is_harmless]
    return unused_of(unknown, [name for name, is_harmless in found.items() if is_harmless])


def _others_in(value: object, path: str) -> Iterator[tuple[str, bool]]:
    if isinstance(value, Reported):
        yield from value.others(path)
    elif isinstance(value, list):
        for each in value:
            yield from _others_in(each, path)


# The types of blocks that Anthropic documents and this server refuses, with the reasons.
_HOSTED: Final = (
    "which belongs to a tool that Anthropic runs, and this server runs none: send what it holds "
    "as text"
)
_SHORTENED: Final = (
    "which Anthropic's server writes when it shortens a conversation: send the messages themselves"
)
_CHANGED: Final = (
    "which changes the tools between two turns: send the tools of this turn in `tools`"
)

REFUSED_BLOCKS: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        (
            "server_tool_use", "web_search_tool_result", "web_fetch_tool_result",
            "code_execution_tool_result", "bash_code_execution_tool_result",
            "text_editor_code_execution_tool_result", "tool_search_tool_result",
            "advisor_tool_result", "mcp_tool_use", "mcp_tool_result", "mcp_tool_listing",
        ),
        _HOSTED,
    ),
    "container_upload": "which names a stored file, and this server stores none",
    "tool_reference": "which names a tool for the model to load: send the tool in `tools`",
    "browser_state": "which belongs to Anthropic's browser tools: send what it holds as text",
    "compaction": _SHORTENED,
    "fallback": "which marks a change of the model, and this server changes none: leave it out",
    "tool_addition": _CHANGED,
    "tool_removal": _CHANGED,
}  # fmt: skip


def wrong_type(value: object, types: Sequence[str]) -> PydanticCustomError:
    """Return the error of a block whose type is none of `types`."""
    if not isinstance(value, Mapping):
        return invalid("must be an object")
    kind = value.get("type")
    if kind is None:
        return missing("must have a `type`")
    if isinstance(kind, str) and kind in REFUSED_BLOCKS:
        return unsupported(f"is of type {kind}, {REFUSED_BLOCKS[kind]}")
    return invalid(f"must have one of these types: {', '.join(types)}")
