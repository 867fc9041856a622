"""The files of the reference models: templates, defaults and tokenizers as they were trained."""

import json
from pathlib import Path
from typing import Any

import jinja2

from tests.tables import table

MODELS = Path(__file__).resolve().parents[3] / "models"
IMAGE = "<|vision_start|><|image_pad|><|vision_end|>"
PING = {"type": "function", "function": {"name": "ping", "parameters": {}}}
CALL = {"type": "function", "function": {"name": "get_time", "arguments": {"city": "Łódź"}}}
SYSTEM = {"role": "system", "content": "Be brief."}
HELLO = {"role": "user", "content": "Hello"}
CALLED = {"role": "assistant", "content": "", "tool_calls": [CALL, CALL]}
WRITTEN = '<tool_call>\n{"name": "get_time", "arguments": {"city": "Łódź"}}\n</tool_call>'


def template(name: str) -> str:
    return (MODELS / name / "chat_template.jinja").read_text(encoding="utf-8")


def render(name: str, messages: list[dict[str, Any]], **values: Any) -> str:
    """The prompt, which must be the same whether a server trims blocks or not."""
    prompts = set()
    for trims in (True, False):
        environment = jinja2.Environment(
            autoescape=False, trim_blocks=trims, lstrip_blocks=trims, keep_trailing_newline=trims
        )
        environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
        prompts.add(environment.from_string(template(name)).render(messages=messages, **values))
    (prompt,) = prompts
    return prompt


@table("name, trained", [("tiny-chat", "."), ("tiny-draft", "."), ("tiny-vision", "vision")])
def test_a_shipped_model_has_the_template_of_training_and_is_greedy(name, trained):
    source = MODELS / "training" / trained / "template.jinja"
    defaults = json.loads((MODELS / name / "generation_config.json").read_text(encoding="utf-8"))

    assert template(name) == source.read_text(encoding="utf-8")
    assert defaults["do_sample"] is False
    assert "temperature" not in defaults


def test_a_model_and_its_draft_share_one_tokenizer():
    chat, draft = (MODELS / name / "tokenizer.json" for name in ("tiny-chat", "tiny-draft"))
    assert chat.read_bytes() == draft.read_bytes()


def test_a_past_call_is_rendered_as_the_model_writes_it_after_tools_and_open_reasoning():
    start = "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n<think>\n"
    opened = {"add_generation_prompt": True, "enable_thinking": True}
    assert render("tiny-chat", [HELLO], **opened) == start
    assert render("tiny-chat", [HELLO], add_generation_prompt=True) == f"{start}\n</think>\n\n"

    assert render("tiny-chat", [SYSTEM, HELLO], tools=[PING]).startswith(
        '<|im_start|>system\nBe brief.\n\nTools:\n{"name": "ping", "parameters": {}}\n<|im_end|>'
    )
    answer = {"role": "tool", "content": "12:00"}
    assert render("tiny-chat", [HELLO, CALLED, answer]).endswith(
        f"<|im_start|>assistant\n{WRITTEN}\n{WRITTEN}<|im_end|>\n"
        "<|im_start|>user\n<tool_response>\n12:00\n</tool_response><|im_end|>\n"
    )


def test_pictures_stand_where_the_message_has_them():
    content = [
        {"type": "text", "text": "First "},
        {"type": "image"},
        {"type": "text", "text": " and "},
        {"type": "image_url", "image_url": {"url": "data:,"}},
    ]

    user = {"role": "user", "content": content}
    assert render("tiny-vision", [SYSTEM, user], add_generation_prompt=True) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n"
        f"<|im_start|>user\nFirst {IMAGE} and {IMAGE}<|im_end|>\n<|im_start|>assistant\n"
    )
    tool = render("tiny-vision", [{"role": "tool", "content": [{"type": "image"}]}])
    assert tool == f"<|im_start|>user\n<tool_response>\n{IMAGE}\n</tool_response><|im_end|>\n"
