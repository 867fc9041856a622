"""Builders for the tests of prompting."""

import json
import shutil
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from vinery_serving.core.media import MediaPart
from vinery_serving.core.request import Conversation, Message, Role, TextPart, ToolCall
from vinery_serving.prompting.assets import ModelAssets
from vinery_serving.prompting.render import ChatRenderer
from vinery_serving.prompting.template import ChatTemplate

ROOT = Path(__file__).parents[2]
MODEL = ROOT / "models" / "tiny-chat"
GOLDEN = ROOT / "tests" / "golden" / "prompting"


def a_message(role: str, text: str = "", **fields: Any) -> Message:
    return Message(Role(role), (TextPart(text),) if text else (), **fields)


def a_chat(*turns: tuple[str, str] | Message, **fields: Any) -> Conversation:
    messages = [turn if isinstance(turn, Message) else a_message(*turn) for turn in turns]
    return Conversation(tuple(messages), **fields)


def a_question(*parts: str | MediaPart, role: Role = Role.USER) -> Message:
    content = (TextPart(part) if isinstance(part, str) else part for part in parts)
    return Message(role, tuple(content))


def a_calling_chat(arguments: str, **fields: Any) -> Conversation:
    call = ToolCall("call_1", "get_weather", arguments)
    return a_chat(
        ("user", "Hi"),
        a_message("assistant", tool_calls=(call,), **fields),
        a_message("tool", "Sunny", tool_call_id="call_1"),
    )


@cache
def renderer_of(text: str) -> ChatRenderer:
    return ChatRenderer(ChatTemplate(text, {"bos_token": "<bos>"}))


def rendered(text: str, conversation: Conversation) -> str:
    return renderer_of(text).render(conversation).text


def a_folder(path: Path, **files: Any) -> Path:
    """A folder with an empty model and tokenizer; `config={...}` becomes `config.json`."""
    path.mkdir(exist_ok=True)
    for name in ("openvino_model.xml", "tokenizer.json"):
        (path / name).write_text("")
    for name, content in files.items():
        (path / f"{name}.json").write_text(
            content if isinstance(content, str) else json.dumps(content)
        )
    return path


def a_coder(path: Path, markers: Sequence[str]) -> ModelAssets:
    """The reference model, with infill markers instead of its tags for tools."""
    name_markers(a_copy_of_the_model(path, without=("openvino_tokenizer*",)), markers)
    return ModelAssets.load(path)


def with_tokens_around(folder: Path, *, has_end: bool = False) -> Path:
    """Let the tokenizer of a copy of the reference model put token 1 before each text and, with
    `has_end`, token 2 after the text."""
    file = folder / "tokenizer.json"
    tokenizer = json.loads(file.read_text())
    start, end = (
        {"id": name, "ids": [id_], "tokens": [name]}
        for id_, name in ((1, "<|im_start|>"), (2, "<|im_end|>"))
    )
    tokenizer["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [
            {"SpecialToken": {"id": start["id"], "type_id": 0}},
            {"Sequence": {"id": "A", "type_id": 0}},
            *[{"SpecialToken": {"id": end["id"], "type_id": 0}}] * has_end,
        ],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {each["id"]: each for each in (start, end)},
    }
    file.unlink()
    file.write_text(json.dumps(tokenizer))
    return folder


def name_markers(folder: Path, markers: Sequence[str]) -> None:
    """Give the tokens 3, 4 and 5 of a copy of the reference model other names."""
    names = ("<tool_call>", "</tool_call>", "<tool_response>")
    for file in (folder / "tokenizer.json", folder / "tokenizer_config.json"):
        text = file.read_text()
        for old, new in zip(names, markers, strict=False):
            text = text.replace(json.dumps(old), json.dumps(new))
        file.write_text(text)


def a_copy_of_the_model(path: Path, *, without: tuple[str, ...] = ()) -> Path:
    shutil.copytree(MODEL, path, ignore=shutil.ignore_patterns(*without, "openvino_model.bin"))
    return path
