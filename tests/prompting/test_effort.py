"""An effort in the template's own words, and a budget for what it has no word for."""

import pytest

from serving.core.request import Effort, Rendering
from serving.prompting.assets import ModelAssets
from serving.prompting.effort import Thinking, thinking_of
from serving.prompting.template import ChatTemplate

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
# gpt-oss names only its default, Mistral Small all that it takes.
LEVEL = '{% if reasoning_effort is not defined %}{% set reasoning_effort = "medium" %}{% endif %}'
TWO_LEVELS = (
    "{% if reasoning_effort not in ['none', 'high'] %}{{ raise_exception('no') }}{% endif %}"
)
# Seed-OSS
BUDGET = "{% if thinking_budget is defined %}{{ thinking_budget }}{% endif %}"


def thinking(template: str, effort: str) -> Thinking:
    return thinking_of(Effort(effort), ChatTemplate(template))


@pytest.mark.parametrize(("effort", "budget"), BUDGETS.items())
def test_a_template_that_takes_nothing_leaves_a_budget(effort, budget):
    assert thinking(CHATML, effort) == Thinking({}, budget)


def test_without_an_effort_nothing_is_said():
    assert thinking_of(None, ChatTemplate(SWITCH)) == Thinking()


@pytest.mark.parametrize(
    ("template", "name"), [(SWITCH, "enable_thinking"), (OTHER_SWITCH, "thinking")]
)
def test_a_switch_is_set_and_more_than_none_is_bounded(template, name):
    assert thinking(template, "none") == Thinking({name: False})
    assert thinking(template, "low") == Thinking({name: True}, 1024)
    assert thinking(template, "max") == Thinking({name: True})


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
    assert thinking(LEVEL, effort) == Thinking({"reasoning_effort": level})


def test_no_thinking_where_the_levels_have_no_word_for_it_is_a_budget_of_nothing():
    assert thinking(LEVEL, "none") == Thinking({"reasoning_effort": "low"}, 0)


@pytest.mark.parametrize(
    ("effort", "level"), [("none", "none"), ("minimal", "high"), ("medium", "high")]
)
def test_the_levels_that_a_template_names_are_all_that_it_gets(effort, level):
    assert thinking(TWO_LEVELS, effort) == Thinking({"reasoning_effort": level})


def test_a_budget_of_the_templates_own_is_told_too():
    assert thinking(BUDGET, "low") == Thinking({"thinking_budget": 1024}, 1024)
    assert thinking(BUDGET, "max") == Thinking({})


def test_the_reference_model_thinks_with_an_effort():
    assets = ModelAssets.load(MODEL)

    def prompt(effort: str):
        return assets.render(a_chat(("user", "Hi"), rendering=Rendering(effort=Effort(effort))))

    assert prompt("low").opens_reasoning
    assert prompt("low").thinking_budget == 1024
    assert not prompt("none").opens_reasoning
    assert prompt("none").thinking_budget is None


def test_explicit_variables_win_over_the_effort():
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
def test_without_a_template_all_is_left_to_the_budget(fields):
    chat = a_chat(("user", "Hi"), **{"rendering": Rendering(effort=Effort.LOW), **fields})

    assert ModelAssets.load(MODEL).render(chat).thinking_budget == 1024
