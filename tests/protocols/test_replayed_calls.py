"""The messages that replayed calls of other tools than functions become."""

from __future__ import annotations

from typing import Any

from tests.tables import table
from vinery_serving.core.request import Message, Role, TextPart, ToolCall

from .items import assistant, turns

# (the item of a call, its message)
CALLS: list[tuple[dict[str, Any], ToolCall]] = [
    (
        {"type": "custom_tool_call", "call_id": "c", "name": "sql", "input": 'SELECT "x"'},
        ToolCall("c", "sql", '{"input":"SELECT \\"x\\""}'),
    ),
    (
        {
            "type": "local_shell_call",
            "id": "ls_1",
            "call_id": "c",
            "status": "completed",
            "action": {"type": "exec", "command": ["ls"], "env": {}},
        },
        ToolCall("c", "local_shell", '{"type":"exec","command":["ls"],"env":{}}'),
    ),
    (
        {"type": "shell_call", "call_id": "c", "action": {"commands": ["ls"]}},
        ToolCall("c", "shell", '{"commands":["ls"]}'),
    ),
    (
        {
            "type": "apply_patch_call",
            "call_id": "c",
            "status": "completed",
            "operation": {"type": "delete_file", "path": "a"},
        },
        ToolCall("c", "apply_patch", '{"type":"delete_file","path":"a"}'),
    ),
]
# (the item of an output, its message)
OUTPUTS: list[tuple[dict[str, Any], str]] = [
    ({"type": "function_call_output", "call_id": "c", "output": "4"}, "4"),
    ({"type": "custom_tool_call_output", "call_id": "c", "output": "4"}, "4"),
    ({"type": "local_shell_call_output", "id": "c", "output": "4"}, "4"),
    (
        {"type": "shell_call_output", "call_id": "c", "output": [{"stdout": "4"}]},
        '[{"stdout":"4"}]',
    ),
    ({"type": "apply_patch_call_output", "call_id": "c", "status": "failed"}, "failed"),
    (
        {"type": "apply_patch_call_output", "call_id": "c", "status": "failed", "output": "No."},
        "No.",
    ),
]
# (the item of a call with its result, the call and the tool message)
HOSTED: list[tuple[dict[str, Any], ToolCall, str]] = [
    (
        {
            "type": "web_search_call",
            "id": "ws_1",
            "status": "completed",
            "action": {"type": "search", "query": "x"},
        },
        ToolCall("ws_1", "web_search", '{"type":"search","query":"x"}'),
        "completed",
    ),
    (
        {"type": "web_search_call", "status": "failed", "action": {"query": "x"}},
        ToolCall("web_search", "web_search", '{"query":"x"}'),
        "failed",
    ),
    (
        {
            "type": "file_search_call",
            "id": "fs_1",
            "status": "completed",
            "queries": ["x"],
            "results": [{"filename": "a", "text": "b"}],
        },
        ToolCall("fs_1", "file_search", '{"queries":["x"]}'),
        '[{"filename":"a","text":"b"}]',
    ),
    (
        {
            "type": "code_interpreter_call",
            "id": "ci_1",
            "container_id": "cntr_1",
            "status": "completed",
            "code": "1+1",
            "outputs": [{"type": "logs", "logs": "2"}],
        },
        ToolCall("ci_1", "code_interpreter", '{"code":"1+1"}'),
        '[{"type":"logs","logs":"2"}]',
    ),
    (
        {
            "type": "mcp_call",
            "id": "mcp_1",
            "server_label": "s",
            "name": "roll",
            "arguments": '{"n":1}',
            "output": "6",
        },
        ToolCall("mcp_1", "roll", '{"n":1}'),
        "6",
    ),
    (
        {"type": "mcp_call", "id": "m", "name": "roll", "arguments": "", "error": {"code": 1}},
        ToolCall("m", "roll", "{}"),
        '{"error":{"code":1}}',
    ),
]


@table("item, shown", CALLS)
def test_a_call_of_any_tool_becomes_a_function_call(item: dict[str, Any], shown: ToolCall) -> None:
    assert turns(item) == (Message(Role.ASSISTANT, tool_calls=(shown,)),)


@table("item, shown", OUTPUTS)
def test_an_output_of_any_tool_answers_its_call(item: dict[str, Any], shown: str) -> None:
    assert turns(item) == (Message(Role.TOOL, (TextPart(shown),), tool_call_id="c"),)


@table("item, shown, result", HOSTED)
def test_a_hosted_call_becomes_a_call_and_its_output(
    item: dict[str, Any], shown: ToolCall, result: str
) -> None:
    assert turns(assistant("Let me see."), item) == (
        Message(Role.ASSISTANT, (TextPart("Let me see."),), tool_calls=(shown,)),
        Message(Role.TOOL, (TextPart(result),), tool_call_id=shown.id),
    )
