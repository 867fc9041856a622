"""Parameters of other servers that mean exactly what parameters of this one mean.

An alias turns its value into fields of the body, by their names; `a.b` is the member b of a. What
the fields may hold is checked where they are read.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from vinery_serving.core.errors import UnsupportedParameter
from vinery_serving.core.tasks import Endpoint
from vinery_serving.protocols.common.reading import refusal

Fields = Mapping[str, Any]
# From the endpoint, the path of the alias, and its value. Raises `InvalidRequest`.
Read = Callable[[Endpoint, str, Any], Fields]


@dataclass(frozen=True, slots=True)
class Alias:
    """`meaning` is its description for users."""

    meaning: str
    read: Read


# Parameters that are several names of one: an alias of one contradicts each of them.
SYNONYMS: Final[Mapping[str, tuple[str, ...]]] = {
    "max_tokens": ("max_tokens", "max_completion_tokens", "max_output_tokens"),
    "thinking_token_budget": ("thinking_token_budget", "reasoning_max_tokens"),
}

_SWITCHES: Final = ("enable_thinking", "thinking")
_EFFORTS: Final[Mapping[Endpoint, str]] = {
    Endpoint.CHAT: "reasoning_effort",
    Endpoint.RESPONSES: "reasoning.effort",
    Endpoint.MESSAGES: "output_config.effort",
}


def same_as(name: str) -> Alias:
    """Return an alias of the parameter `name`."""
    return Alias(f"The same as `{name}`.", lambda endpoint, path, value: {name: value})


def _effort(endpoint: Endpoint, path: str, value: Any) -> Fields:
    if endpoint not in _EFFORTS:
        raise UnsupportedParameter(
            f"`{path}` needs a chat template, and completions have none. Leave it out, or use "
            "chat/completions.",
            param=path,
        )
    return {_EFFORTS[endpoint]: value}


def _thinks(endpoint: Endpoint, path: str, value: Any) -> Fields:
    """A switch, or an effort."""
    if not isinstance(value, bool):
        return _effort(endpoint, path, value)
    none = _effort(endpoint, path, "none")
    return {f"chat_template_kwargs.{name}": True for name in _SWITCHES} if value else none


def _thinking(endpoint: Endpoint, path: str, value: Any) -> Fields:
    match value:
        case {"type": "enabled" | "disabled" as kind, **rest} if not rest.keys() - {
            "budget_tokens"
        }:
            fields = dict(_thinks(endpoint, path, kind == "enabled"))
            if (budget := rest.get("budget_tokens")) is not None:
                fields["thinking_token_budget"] = budget
            return fields
    raise refusal(path, "must have the `type` enabled or disabled, and may have `budget_tokens`")


def _reasoning(endpoint: Endpoint, path: str, value: Any) -> Fields:
    known = {"effort", "max_tokens", "exclude", "enabled", "summary"}
    if not isinstance(value, dict) or value.keys() - known:
        raise refusal(path, "must be an object with `effort`, `max_tokens`, `exclude` or `enabled`")
    fields: dict[str, Any] = {}
    if (enabled := value.get("enabled")) is not None:
        fields |= _thinks(endpoint, f"{path}.enabled", enabled)
    if (effort := value.get("effort")) is not None:
        fields |= _effort(endpoint, path, effort)
    if (budget := value.get("max_tokens")) is not None:
        fields["thinking_token_budget"] = budget
    if (excluded := value.get("exclude")) is not None:
        fields["include_reasoning"] = not excluded if isinstance(excluded, bool) else excluded
    return fields


THINKS: Final = Alias(
    "True switches the template's reasoning on, false is the effort `none`; low, medium and high "
    "are efforts.",
    _thinks,
)
THINKING: Final = Alias(
    "An object: its `type` enabled or disabled is a switch as `enable_thinking`, and "
    "`budget_tokens` is `thinking_token_budget`.",
    _thinking,
)
REASONING: Final = Alias(
    "An object: `effort` is `reasoning_effort`, `max_tokens` is `thinking_token_budget`, `exclude` "
    "is the opposite of `include_reasoning`, and `enabled` a switch as `enable_thinking`.",
    _reasoning,
)
EFFORT: Final = Alias("The same as `reasoning.effort`.", _effort)
