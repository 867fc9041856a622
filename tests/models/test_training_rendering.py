"""The prompts of training are the prompts of serving: one template, rendered one way."""

import json
from pathlib import Path
from random import Random

import jinja2
import pytest
from training.cases import all_cases
from training.conversations import conversation
from training.rendering import TEMPLATE_PATH, call_text, prompt_text, render

MODELS = Path(__file__).resolve().parents[2] / "models"
NAMES = ("tiny-chat", "tiny-draft")


@pytest.mark.parametrize("name", NAMES)
def test_a_shipped_model_has_the_template_of_training_and_is_greedy(name):
    shipped = (MODELS / name / "chat_template.jinja").read_text(encoding="utf-8")
    defaults = json.loads((MODELS / name / "generation_config.json").read_text(encoding="utf-8"))

    assert shipped == TEMPLATE_PATH.read_text(encoding="utf-8")
    assert defaults["do_sample"] is False
    assert "temperature" not in defaults


def test_the_two_models_share_one_tokenizer():
    chat, draft = ((MODELS / name / "tokenizer.json").read_bytes() for name in NAMES)

    assert chat == draft


@pytest.mark.parametrize("trims", [True, False])
def test_prompts_do_not_depend_on_how_a_server_trims_blocks(trims):
    environment = jinja2.Environment(
        autoescape=False, trim_blocks=trims, lstrip_blocks=trims, keep_trailing_newline=trims
    )
    environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
    template = environment.from_string(TEMPLATE_PATH.read_text(encoding="utf-8"))
    rng = Random(4)

    for _ in range(200):
        talk = conversation(rng)
        served = template.render(
            messages=list(talk.prompt),
            tools=list(talk.tools) if talk.tools else None,
            add_generation_prompt=True,
            enable_thinking=talk.thought is not None,
        )
        assert served == prompt_text(talk)


def test_reasoning_is_open_when_it_is_on_and_tools_follow_the_system_prompt():
    messages = [{"role": "user", "content": "Hello"}]
    assert render(messages, enable_thinking=True).endswith("<think>\n")
    assert render(messages, enable_thinking=False).endswith("<think>\n\n</think>\n\n")

    tool = {"type": "function", "function": {"name": "ping", "parameters": {}}}
    messages = [{"role": "system", "content": "Be brief."}, *messages]
    assert render(messages, [tool]).startswith(
        '<|im_start|>system\nBe brief.\n\nTools:\n{"name": "ping", "parameters": {}}\n<|im_end|>'
    )


def test_a_past_call_is_rendered_as_the_model_should_write_it():
    call = {"type": "function", "function": {"name": "get_time", "arguments": {"city": "Łódź"}}}
    messages = [
        {"role": "user", "content": "What time is it in Łódź?"},
        {"role": "assistant", "content": "", "tool_calls": [call, call]},
    ]

    prompt = render(messages, add_generation_prompt=False)

    assert f"{call_text(call)}\n{call_text(call)}<|im_end|>" in prompt


def test_every_case_has_a_prompt_and_an_answer_of_its_own():
    cases = list(all_cases())

    assert len({case.prompt for case in cases}) == len(cases)
    assert all(case.expected for case in cases)
