"""Maps a requested reasoning effort to variables of the chat template and a token budget.

Templates have a switch (Qwen 3, DeepSeek V3.1), a level (gpt-oss, Mistral), a budget (Seed-OSS) or
nothing (DeepSeek R1). An effort that a template cannot express limits the reasoning tokens.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

_SWITCHES: Final = ("enable_thinking", "thinking")
_LEVEL: Final = "reasoning_effort"
_BUDGET: Final = "thinking_budget"

# In tokens. Low, medium and high are the budgets of Google's OpenAI-compatible endpoint; the others
# continue that series. The highest effort has no limit.
_BUDGETS: Final[Mapping[str, int | None]] = {
    "none": 0,
    "minimal": 512,
    "low": 1_024,
    "medium": 8_192,
    "high": 24_576,
    "xhigh": 32_768,
    "max": None,
}
_ORDER: Final = tuple(_BUDGETS)
# The levels of models whose template names only the default level.
_USUAL: Final = frozenset(("low", "medium", "high"))


@dataclass(frozen=True, slots=True)
class ReasoningSettings:
    template_variables: Mapping[str, Any] = field(default_factory=dict)
    budget: int | None = None  # in tokens. None: no limit.


def reasoning_settings(
    effort: str | None, variables: Collection[str] | None = None, constants: Collection[str] = ()
) -> ReasoningSettings:
    """Return the settings for an effort, a value of `core.request.Effort`; empty without one.
    `variables` and `constants` are the names and strings that the template uses. Without a template
    (None) the effort becomes a budget only."""
    if effort is None:
        return ReasoningSettings()
    budget = _BUDGETS[effort]
    if variables is None:
        return ReasoningSettings({}, budget)
    values: dict[str, Any] = {name: effort != "none" for name in _SWITCHES if name in variables}
    is_off = bool(values) and effort == "none"
    if _LEVEL in variables:
        level = _nearest(effort, constants)
        values[_LEVEL] = level
        if (level == "none") == (effort == "none"):
            budget = None
    elif _BUDGET in variables and budget is not None:
        values[_BUDGET] = budget
    return ReasoningSettings(values, None if is_off else budget)


def _nearest(effort: str, constants: Collection[str]) -> str:
    """The template's closest level, the higher of two. Only "none" maps to "none"."""
    named = {level for level in _ORDER if level in constants}
    levels = (named if len(named) > 1 else named | _USUAL) - {"none"}
    if effort == "none" and "none" in named:
        return "none"
    at = _ORDER.index(effort)
    return min(levels, key=lambda each: (abs(_ORDER.index(each) - at), -_ORDER.index(each)))
