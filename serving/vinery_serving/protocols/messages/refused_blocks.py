"""The types of blocks that Anthropic documents and this server refuses, with the reasons."""

from collections.abc import Mapping, Sequence
from typing import Final

from pydantic_core import PydanticCustomError

from vinery_serving.protocols.common.reading import invalid, missing, unsupported

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
