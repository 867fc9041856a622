"""Parameters of other servers and endpoints that clients send here.

A parameter with exactly the meaning of one of this server is honoured. Any other that would change
the answer is refused, with what to use instead. One that cannot change the answer is accepted, and
the header `x-vinery-ignored` names it. A row is for the endpoints without a field of that name.

An alias turns its value into fields of the body, by name; `a.b` is the member b of a. To add a
parameter, add a row; the documents follow. The sources are the servers' documents of 2026.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from vinery_serving.core.errors import UnsupportedParameter
from vinery_serving.core.tasks import Endpoint
from vinery_serving.protocols.common.reading import refusal
from vinery_serving.protocols.common.refused import Refused

Fields = Mapping[str, Any]
# Takes the endpoint, and the path and the value of the alias. Raises `InvalidRequest`.
Read = Callable[[Endpoint, str, Any], Fields]


@dataclass(frozen=True, slots=True)
class Alias:
    """`meaning` is its description for users."""

    meaning: str
    read: Read


# Fields with the same meaning: an alias must agree with each.
SYNONYMS: Final[Mapping[str, tuple[str, ...]]] = {
    "max_tokens": ("max_tokens", "max_completion_tokens", "max_output_tokens"),
    "thinking_token_budget": ("thinking_token_budget", "reasoning_max_tokens"),
}

_EFFORTS: Final[Mapping[Endpoint, str]] = {
    Endpoint.CHAT: "reasoning_effort",
    Endpoint.RESPONSES: "reasoning.effort",
    Endpoint.MESSAGES: "output_config.effort",
}


def same_as(name: str) -> Alias:
    return Alias(f"The same as `{name}`.", lambda endpoint, path, value: {name: value})


def _effort(endpoint: Endpoint, path: str, value: Any) -> Fields:
    if endpoint not in _EFFORTS:
        raise UnsupportedParameter(
            f"`{path}` needs a chat template, and completions have none. Leave it out, or use "
            "chat/completions.",
            param=path,
        )
    return {_EFFORTS[endpoint]: value}


def _switch_or_effort(endpoint: Endpoint, path: str, value: Any) -> Fields:
    """Read a boolean as a switch, and other values as an effort."""
    if not isinstance(value, bool):
        return _effort(endpoint, path, value)
    none, switches = _effort(endpoint, path, "none"), ("enable_thinking", "thinking")
    return {f"chat_template_kwargs.{name}": True for name in switches} if value else none


def _thinking(endpoint: Endpoint, path: str, value: Any) -> Fields:
    match value:
        case {"type": "enabled" | "disabled" as kind, **rest} if not rest.keys() - {
            "budget_tokens"
        }:
            fields = dict(_switch_or_effort(endpoint, path, kind == "enabled"))
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
        fields |= _switch_or_effort(endpoint, f"{path}.enabled", enabled)
    if (effort := value.get("effort")) is not None:
        fields |= _effort(endpoint, path, effort)
    if (budget := value.get("max_tokens")) is not None:
        fields["thinking_token_budget"] = budget
    if (excluded := value.get("exclude")) is not None:
        fields["include_reasoning"] = not excluded if isinstance(excluded, bool) else excluded
    return fields


REASONING_SWITCH: Final = Alias(
    "True switches the template's reasoning on, false is the effort `none`; low, medium and high "
    "are efforts.",
    _switch_or_effort,
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


@dataclass(frozen=True, slots=True)
class Harmless:
    """A parameter without effect here that cannot change the answer. `reason` is a sentence."""

    reason: str


Fate = Alias | Refused | Harmless


@dataclass(frozen=True, slots=True)
class ForeignParameter:
    name: str
    servers: str
    fate: Fate

    @property
    def outcome(self) -> tuple[str, str]:
        """`honoured`, `ignored` or `refused`, and the explanation."""
        match self.fate:
            case Alias() as alias:
                return "honoured", alias.meaning
            case Harmless() as harmless:
                return "ignored", harmless.reason
            case Refused() as refused:
                return "refused", refused.message(self.name)


_ROUTED = Harmless("This server is the only provider of its models.")

_ROWS: Final[Mapping[str, Mapping[str, Fate]]] = {
    "vLLM": {
        "guided_whitespace_pattern": Refused(
            "the answer has at most one space after a comma or colon", harmless=("",)
        ),
        "guided_decoding_backend": Harmless("There is one compiler of grammars."),
    },
    "Anthropic": {
        "max_tokens_to_sample": same_as("max_tokens"),
        "thinking": THINKING,
        "system": Refused("send a message with the role system", harmless=("", [])),
        "mcp_servers": Refused("it calls no tools; give the model functions", harmless=([],)),
        "output_config": Refused("use `response_format`", harmless=({},)),
        "anthropic_version": Harmless("This server has one version of its API."),
        "anthropic_beta": Harmless("This server has one version of its API."),
        "betas": Harmless("This server has one version of its API."),
        "cache_control": Harmless("The prefix cache is automatic."),
        "fallbacks": Refused("a request has one model", harmless=([], "default")),
        "compaction": Refused("it sends the model all messages of a request; shorten them first"),
        "thread": Refused("it stores no conversations; send all messages"),
        "billing_policy": Harmless("Usage counts for the project of the key."),
        "fallback_credit_token": _ROUTED,
        "diagnostics": Harmless("The answer has no such member."),
        "inference_geo": _ROUTED,
        "speed": _ROUTED,
        "user_profile_id": Harmless("Use `metadata`."),
        "workspace_id": _ROUTED,
    },
    "FastDeploy": {"enable_thinking": REASONING_SWITCH},
    "OpenRouter": {"reasoning": REASONING},
    "OpenAI, at another endpoint": {
        "reasoning_effort": EFFORT,
        "messages": Refused("this endpoint reads another field", harmless=([],)),
        "prompt": Refused("this endpoint reads another field", harmless=("", [])),
        "input": Refused("this endpoint reads another field", harmless=("", [])),
        "instructions": Refused("send a system message", harmless=("",)),
        "text": Refused("use `response_format`", harmless=({},)),
        "tools": Refused("use chat/completions or responses", harmless=([],)),
        "tool_choice": Refused("use chat/completions or responses", harmless=("none", "auto")),
        "functions": Refused("use `tools`, of chat/completions or responses", harmless=([],)),
        "function_call": Refused("use `tool_choice`", harmless=("none", "auto")),
        "suffix": Refused("use completions", harmless=("",)),
        "chat_template": Refused("this endpoint uses no template", harmless=("",)),
        "chat_template_kwargs": Refused("this endpoint uses no template", harmless=({},)),
        "documents": Refused("this endpoint uses no template", harmless=([],)),
        "continue_final_message": Refused("this endpoint uses no template", harmless=(False,)),
        "truncation": Refused("use `truncate_prompt_tokens`", harmless=("disabled",)),
        "top_logprobs": Refused("use `logprobs`", harmless=(0,)),
        "conversation": Refused("only `responses` has them; send all messages"),
        "previous_response_id": Refused("only `responses` has it; send all messages"),
        "background": Refused("only `responses` has it", harmless=(False,)),
        "include": Refused("use `logprobs`", harmless=([],)),
        "parallel_tool_calls": Harmless("This endpoint has no tools."),
        "verbosity": Harmless("The served models have no such setting."),
        "prediction": Harmless("A hint for speed."),
    },
}  # fmt: skip

FOREIGN: Final = tuple(
    ForeignParameter(name, servers, fate)
    for servers, rows in _ROWS.items()
    for name, fate in rows.items()
)

FOREIGN_BY_NAME: Final[Mapping[str, ForeignParameter]] = {each.name: each for each in FOREIGN}
