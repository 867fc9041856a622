"""The kinds of messages, content parts and items of `input`, and what Vinery does with them.

A row has a kind, the letters of the systems that have it (as in `parameter`), an example, and
its meaning. Without a meaning Vinery refuses it, and the error states the reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vinery_serving.core.request import Endpoint


@dataclass(frozen=True, slots=True)
class Part:
    """One kind of message, part or item, with the fields of an example request."""

    name: str
    systems: str
    endpoint: Endpoint
    fields: Mapping[str, Any]
    meaning: str | None = None


def _message(role: str, systems: str, meaning: str, **members: Any) -> Part:
    message = {"role": role, "content": "a", **members}
    return Part(f"role {role}", systems, Endpoint.CHAT, {"messages": [message]}, meaning)


def _part(kind: str, systems: str, meaning: str | None = None, **members: Any) -> Part:
    content = [{"type": kind, **members}]
    return Part(
        f"part {kind}",
        systems,
        Endpoint.CHAT,
        {"messages": [{"role": "user", "content": content}]},
        meaning,
    )


def _item(kind: str, systems: str, meaning: str | None = None, **members: Any) -> Part:
    fields = {"input": [{"type": kind, **members}]}
    return Part(f"item {kind}", systems, Endpoint.RESPONSES, fields, meaning)


_TEXT = "Text. Every endpoint reads every name of a text part."
_PICTURE = (
    "A picture, for models with vision: a data URL, or a URL that the media rules allow; on /v3 "
    "also a path. `detail` limits its pixels."
)
_VIDEO = "A video, for models that take videos, from the same sources."
_FILE = "A PDF file or a picture, for models with vision: pages become pictures and their text."
_CALL = {"name": "f", "arguments": "{}"}

PARTS: Sequence[Part] = (
    _message("system", "OAVF", "As the template renders it."),
    _message("developer", "AV", "A system message, if the template has no developer role."),
    _message("user", "OAVF", "As the template renders it."),
    _message(
        "assistant", "OAVF", "With `tool_calls`, `refusal` and reasoning.", reasoning_content="b"
    ),
    _message("tool", "OAVF", "The output of the call that it names.", tool_call_id="c"),
    _message("function", "A", "The deprecated form of a tool's output.", name="f"),
    _part("text", "OAVF", _TEXT, text="a"),
    _part("input_text", "OAV", _TEXT, text="a"),
    _part("output_text", "OAV", _TEXT, text="a"),
    _part("refusal", "AV", "Text.", refusal="a"),
    _part("image_url", "OAVF", _PICTURE, image_url={"url": "https://example.com/a.png"}),
    _part("input_image", "OAV", _PICTURE, image_url="https://example.com/a.png"),
    _part("input_audio", "OAV", input_audio={"data": "", "format": "wav"}),
    _part("video_url", "VF", _VIDEO, video_url={"url": "https://example.com/a.mp4"}),
    _part("input_video", "", _VIDEO, video_url="https://example.com/a.mp4"),
    _part("file", "A", _FILE, file={"file_data": "data:application/pdf;base64,JVBERg=="}),
    _part("input_file", "A", _FILE, file_url="https://example.com/a.pdf"),
    _item("message", "OAV", "A message.", role="user", content="a"),
    _item("reasoning", "OAV", "The reasoning of the next assistant message.", summary=[]),
    _item("function_call", "OAV", "A call of the assistant.", call_id="c", **_CALL),
    _item("function_call_output", "OAV", "A tool's output.", call_id="c", output="4"),
    _item(
        "custom_tool_call", "A", "A call with the argument `input`.",
        call_id="c", name="f", input="a",
    ),
    _item("custom_tool_call_output", "A", "A tool's output.", call_id="c", output="4"),
    _item("local_shell_call", "A", "A call.", call_id="c", action={}),
    _item("local_shell_call_output", "A", "A tool's output.", id="c", output="4"),
    _item("shell_call", "A", "A call.", call_id="c", action={}),
    _item("shell_call_output", "A", "A tool's output.", call_id="c", output=[]),
    _item("apply_patch_call", "A", "A call.", call_id="c", operation={}),
    _item("apply_patch_call_output", "A", "A tool's output.", call_id="c", status="completed"),
    _item("web_search_call", "A", "A call and its output.", id="c", status="completed"),
    _item("file_search_call", "A", "A call and its output.", id="c", queries=[]),
    _item("code_interpreter_call", "A", "A call and its output.", id="c", code="1"),
    _item("mcp_call", "AV", "A call and its output.", id="c", **_CALL),
    _item("mcp_list_tools", "AV", id="c", tools=[]),
    _item("image_generation_call", "A", id="c", result=""),
    _item("computer_call", "A", call_id="c", action={}),
    _item("computer_call_output", "A", call_id="c", output={}),
    _item("compaction", "A", encrypted_content="x"),
    _item("item_reference", "A", id="x"),
)  # fmt: skip
