"""The messages that replayed calls of other tools than functions become."""

from typing import Any

from tests.tables import table
from vinery_serving.core.request import Message, Role, TextPart, ToolCall

from .test_reading_responses import assistant, turns

EXEC = {"type": "exec", "command": ["ls"], "env": {}}
DELETION = {"type": "delete_file", "path": "a"}
SEARCH = {"type": "search", "query": "x"}
FOUND = {"queries": ["x"], "results": [{"filename": "a", "text": "b"}]}
CODE = {"container_id": "cntr_1", "code": "1+1", "outputs": [{"type": "logs", "logs": "2"}]}
ROLL = {"server_label": "s", "name": "roll"}
DONE = {"status": "completed"}

# A call: type and other members; name and arguments in the message.
CALLS: list[tuple[str, dict[str, Any], str, str]] = [
    (
        "custom_tool_call", {"name": "sql", "input": 'SELECT "x"'}, "sql",
        '{"input":"SELECT \\"x\\""}',
    ),
    (
        "local_shell_call", {"id": "ls_1", "action": EXEC, **DONE}, "local_shell",
        '{"type":"exec","command":["ls"],"env":{}}',
    ),
    ("shell_call", {"action": {"commands": ["ls"]}}, "shell", '{"commands":["ls"]}'),
    (
        "apply_patch_call", {"operation": DELETION, **DONE}, "apply_patch",
        '{"type":"delete_file","path":"a"}',
    ),
]  # fmt: skip
# An output: type and other members; the text of the message.
OUTPUTS: list[tuple[str, dict[str, Any], str]] = [
    ("function_call_output", {"call_id": "c", "output": "4"}, "4"),
    ("custom_tool_call_output", {"call_id": "c", "output": "4"}, "4"),
    ("local_shell_call_output", {"id": "c", "output": "4"}, "4"),
    ("shell_call_output", {"call_id": "c", "output": [{"stdout": "4"}]}, '[{"stdout":"4"}]'),
    ("apply_patch_call_output", {"call_id": "c", "status": "failed"}, "failed"),
    ("apply_patch_call_output", {"call_id": "c", "status": "failed", "output": "No."}, "No."),
]
# A call with its result: type and other members; the call and the tool message.
HOSTED: list[tuple[str, dict[str, Any], ToolCall, str]] = [
    (
        "web_search_call", {"id": "w", "action": SEARCH, **DONE},
        ToolCall("w", "web_search", '{"type":"search","query":"x"}'), "completed",
    ),
    (
        "web_search_call", {"action": {"query": "x"}, "status": "failed"},
        ToolCall("web_search", "web_search", '{"query":"x"}'), "failed",
    ),
    (
        "file_search_call", {"id": "f", **FOUND, **DONE},
        ToolCall("f", "file_search", '{"queries":["x"]}'), '[{"filename":"a","text":"b"}]',
    ),
    (
        "code_interpreter_call", {"id": "i", **CODE, **DONE},
        ToolCall("i", "code_interpreter", '{"code":"1+1"}'), '[{"type":"logs","logs":"2"}]',
    ),
    (
        "mcp_call", {"id": "m", **ROLL, "arguments": '{"n":1}', "output": "6"},
        ToolCall("m", "roll", '{"n":1}'), "6",
    ),
    (
        "mcp_call", {"id": "m", "name": "roll", "arguments": "", "error": {"code": 1}},
        ToolCall("m", "roll", "{}"), '{"error":{"code":1}}',
    ),
]  # fmt: skip


@table("kind, members, name, arguments", CALLS)
def test_a_call_of_any_tool_becomes_a_function_call(
    kind: str, members: dict[str, Any], name: str, arguments: str
) -> None:
    call = ToolCall("c", name, arguments)

    assert turns({"type": kind, "call_id": "c", **members}) == (
        Message(Role.ASSISTANT, tool_calls=(call,)),
    )


@table("kind, members, shown", OUTPUTS)
def test_an_output_of_any_tool_answers_its_call(
    kind: str, members: dict[str, Any], shown: str
) -> None:
    answer = Message(Role.TOOL, (TextPart(shown),), tool_call_id="c")

    assert turns({"type": kind, **members}) == (answer,)


@table("kind, members, shown, result", HOSTED)
def test_a_hosted_call_becomes_a_call_and_its_output(
    kind: str, members: dict[str, Any], shown: ToolCall, result: str
) -> None:
    assert turns(assistant("Let me see."), {"type": kind, **members}) == (
        Message(Role.ASSISTANT, (TextPart("Let me see."),), tool_calls=(shown,)),
        Message(Role.TOOL, (TextPart(result),), tool_call_id=shown.id),
    )
