"""Parameters of other servers and endpoints that clients send here, and what becomes of each.

A parameter that would change the answer is honoured as one of this server's own, if it means
exactly the same, or else refused with what to use instead. One that cannot change the answer is
accepted, and the header `x-vinery-ignored` names it. A field of the endpoint itself comes first:
the rows are for the endpoints that have no field of that name.

To add a parameter, add a row; `docs/parameters.md` and the OpenAPI document follow. The sources
are the servers' documents of 2026.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from vinery_serving.protocols.common.aliases import (
    EFFORT,
    REASONING,
    THINKING,
    THINKS,
    Alias,
    same_as,
)
from vinery_serving.protocols.common.refused import Refused


@dataclass(frozen=True, slots=True)
class Harmless:
    """A parameter without effect here that cannot change the answer. `reason` is a sentence."""

    reason: str


Fate = Alias | Refused | Harmless


@dataclass(frozen=True, slots=True)
class Foreign:
    """One parameter, and the servers that have it."""

    name: str
    servers: str
    fate: Fate

    @property
    def outcome(self) -> tuple[str, str]:
        """What becomes of the parameter: a word, and sentences about it."""
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
        "cache_control": Harmless("The prefix cache finds equal starts of prompts itself."),
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
    "FastDeploy": {"enable_thinking": THINKS},
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
        "conversation": Refused("it stores no conversations; send all messages"),
        "previous_response_id": Refused("it stores no responses; send all messages"),
        "background": Refused("it stores no responses", harmless=(False,)),
        "include": Refused("use `logprobs`", harmless=([],)),
        "parallel_tool_calls": Harmless("This endpoint has no tools."),
        "verbosity": Harmless("The served models have no such setting."),
        "prediction": Harmless("A hint for speed."),
    },
}  # fmt: skip

FOREIGN: Final = tuple(
    Foreign(name, servers, fate) for servers, rows in _ROWS.items() for name, fate in rows.items()
)

FOREIGN_BY_NAME: Final[Mapping[str, Foreign]] = {each.name: each for each in FOREIGN}
