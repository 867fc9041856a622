"""An effort becomes variables of the template, or a budget for efforts that the template cannot
express."""

from typing import get_args

from tests.tables import table
from vinery_serving.core.request import Effort, Rendering
from vinery_serving.prompting.assets import ModelAssets
from vinery_serving.prompting.render import ReasoningSettings, reasoning_settings
from vinery_serving.prompting.template import ChatTemplate

from .builders import MODEL, a_chat
from .templates import CHATML

BUDGETS = {"none": 0, "minimal": 512, "low": 1024, "medium": 8192}
BUDGETS |= {"high": 24576, "xhigh": 32768, "max": None}
LEVELS = {"minimal": "low", "low": "low", "medium": "medium"}
LEVELS |= {"high": "high", "xhigh": "high", "max": "high"}

# Qwen 3, and DeepSeek V3.1
SWITCH = "{% if enable_thinking is defined and not enable_thinking %}<think></think>{% endif %}"
OTHER_SWITCH = "{% if not thinking is defined %}{% set thinking = false %}{% endif %}{{ thinking }}"
# gpt-oss names only the default level, Mistral Small all levels.
LEVEL = '{% if reasoning_effort is not defined %}{% set reasoning_effort = "medium" %}{% endif %}'
TWO_LEVELS = (
    "{% if reasoning_effort not in ['none', 'high'] %}{{ raise_exception('no') }}{% endif %}"
)
# Seed-OSS
BUDGET = "{% if thinking_budget is defined %}{{ thinking_budget }}{% endif %}"


@table(
    "template, effort, variables, budget",
    [
        # Without a variable the effort is a budget.
        *((CHATML, effort, {}, budget) for effort, budget in BUDGETS.items()),
        # A switch is set, and efforts above none are limited.
        *(
            (template, effort, {name: effort != "none"}, budget)
            for template, name in ((SWITCH, "enable_thinking"), (OTHER_SWITCH, "thinking"))
            for effort, budget in (("none", None), ("low", 1024), ("max", None))
        ),
        # A level needs no budget.
        *((LEVEL, effort, {"reasoning_effort": level}, None) for effort, level in LEVELS.items()),
        # No reasoning is a budget of zero where the levels lack none.
        (LEVEL, "none", {"reasoning_effort": "low"}, 0),
        # A template gets only levels that it names.
        (TWO_LEVELS, "none", {"reasoning_effort": "none"}, None),
        (TWO_LEVELS, "minimal", {"reasoning_effort": "high"}, None),
        (TWO_LEVELS, "medium", {"reasoning_effort": "high"}, None),
        # A template with a budget variable gets the budget.
        (BUDGET, "low", {"thinking_budget": 1024}, 1024),
        (BUDGET, "max", {}, None),
    ],
)
def test_an_effort_becomes_what_a_template_can_express(template, effort, variables, budget):
    parsed = ChatTemplate(template)

    settings = reasoning_settings(effort, parsed.words.variables, parsed.words.constants)

    assert settings == ReasoningSettings(variables, budget)


def test_every_effort_has_a_budget_and_without_one_nothing_is_set():
    assert set(BUDGETS) == set(get_args(Effort))
    assert reasoning_settings(None, ChatTemplate(SWITCH).words.variables) == ReasoningSettings()


def test_the_reference_model_reasons_with_an_effort_which_is_a_budget_without_its_template():
    assets = ModelAssets.load(MODEL)

    def prompt(effort: str, uses_template: bool = True, **fields):
        rendering = Rendering(effort=effort, uses_template=uses_template)
        return assets.render(a_chat(("user", "Hi"), rendering=rendering, **fields))

    assert prompt("low").opens_reasoning
    assert prompt("low").reasoning_budget == 1024
    assert not prompt("none").opens_reasoning
    assert prompt("none").reasoning_budget is None
    # Explicit variables override the effort.
    assert prompt("none", template_kwargs={"enable_thinking": True}).opens_reasoning
    assert prompt("low", token_ids=(5, 6)).reasoning_budget == 1024
    assert prompt("low", uses_template=False).reasoning_budget == 1024
