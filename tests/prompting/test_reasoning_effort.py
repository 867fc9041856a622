"""An effort becomes variables of the template, or a budget for what the template cannot express."""

import pytest

from vinery_serving.core.request import Effort, Rendering
from vinery_serving.prompting.assets import ModelAssets
from vinery_serving.prompting.reasoning_effort import ReasoningSettings, reasoning_settings
from vinery_serving.prompting.template import ChatTemplate

from .builders import MODEL, a_chat
from .templates import CHATML

BUDGETS = {
    "none": 0,
    "minimal": 512,
    "low": 1024,
    "medium": 8192,
    "high": 24576,
    "xhigh": 32768,
    "max": None,
}

# Qwen 3, and DeepSeek V3.1
SWITCH = "{% if enable_thinking is defined and not enable_thinking %}<think></think>{% endif %}"
OTHER_SWITCH = "{% if not thinking is defined %}{% set thinking = false %}{% endif %}{{ thinking }}"
# gpt-oss names only its default level, Mistral Small all its levels.
LEVEL = '{% if reasoning_effort is not defined %}{% set reasoning_effort = "medium" %}{% endif %}'
TWO_LEVELS = (
    "{% if reasoning_effort not in ['none', 'high'] %}{{ raise_exception('no') }}{% endif %}"
)
# Seed-OSS
BUDGET = "{% if thinking_budget is defined %}{{ thinking_budget }}{% endif %}"


def settings(text: str, effort: str) -> ReasoningSettings:
    template = ChatTemplate(text)
    return reasoning_settings(Effort(effort), template.variables, template.constants)


@pytest.mark.parametrize(("effort", "budget"), BUDGETS.items())
def test_a_template_without_a_variable_leaves_a_budget(effort, budget):
    assert settings(CHATML, effort) == ReasoningSettings({}, budget)


def test_every_effort_has_a_budget():
    assert set(BUDGETS) == set(Effort)


def test_without_an_effort_nothing_is_set():
    assert reasoning_settings(None, ChatTemplate(SWITCH).variables) == ReasoningSettings()


@pytest.mark.parametrize(
    ("template", "name"), [(SWITCH, "enable_thinking"), (OTHER_SWITCH, "thinking")]
)
def test_a_switch_is_set_and_efforts_above_none_are_limited(template, name):
    assert settings(template, "none") == ReasoningSettings({name: False})
    assert settings(template, "low") == ReasoningSettings({name: True}, 1024)
    assert settings(template, "max") == ReasoningSettings({name: True})


@pytest.mark.parametrize(
    ("effort", "level"),
    [
        ("minimal", "low"),
        ("low", "low"),
        ("medium", "medium"),
        ("high", "high"),
        ("xhigh", "high"),
        ("max", "high"),
    ],
)
def test_a_level_needs_no_budget(effort, level):
    assert settings(LEVEL, effort) == ReasoningSettings({"reasoning_effort": level})


def test_no_reasoning_is_a_budget_of_zero_where_the_levels_lack_none():
    assert settings(LEVEL, "none") == ReasoningSettings({"reasoning_effort": "low"}, 0)


@pytest.mark.parametrize(
    ("effort", "level"), [("none", "none"), ("minimal", "high"), ("medium", "high")]
)
def test_a_template_gets_only_levels_that_it_names(effort, level):
    assert settings(TWO_LEVELS, effort) == ReasoningSettings({"reasoning_effort": level})


def test_a_template_with_a_budget_variable_gets_the_budget():
    assert settings(BUDGET, "low") == ReasoningSettings({"thinking_budget": 1024}, 1024)
    assert settings(BUDGET, "max") == ReasoningSettings({})


def test_the_reference_model_reasons_with_an_effort():
    assets = ModelAssets.load(MODEL)

    def prompt(effort: str):
        return assets.render(a_chat(("user", "Hi"), rendering=Rendering(effort=Effort(effort))))

    assert prompt("low").opens_reasoning
    assert prompt("low").reasoning_budget == 1024
    assert not prompt("none").opens_reasoning
    assert prompt("none").reasoning_budget is None


def test_explicit_variables_override_the_effort():
    chat = a_chat(
        ("user", "Hi"),
        template_kwargs={"enable_thinking": True},
        rendering=Rendering(effort=Effort.NONE),
    )

    assert ModelAssets.load(MODEL).render(chat).opens_reasoning


@pytest.mark.parametrize(
    "fields",
    [{"token_ids": (5, 6)}, {"rendering": Rendering(uses_template=False, effort=Effort.LOW)}],
    ids=["ids", "text"],
)
def test_without_a_template_the_effort_is_a_budget(fields):
    chat = a_chat(("user", "Hi"), **{"rendering": Rendering(effort=Effort.LOW), **fields})

    assert ModelAssets.load(MODEL).render(chat).reasoning_budget == 1024
