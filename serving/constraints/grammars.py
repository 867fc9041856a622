"""Grammars for the calls that a request demands of the output.

A thought that the prompt has opened may run its course first. A model that opens its
thoughts itself goes straight to the answer under a grammar: given the choice, a model whose
thinking is switched off takes the thought as a way out.
"""

from __future__ import annotations

from collections.abc import Sequence

from serving.constraints.answers import as_grammar
from serving.constraints.family import GrammarFamily
from serving.core.errors import InvalidRequest, UnsupportedParameter
from serving.core.request import Grammar, Tool, ToolChoice, ToolMode


def tool_grammar(
    family: GrammarFamily,
    tools: Sequence[Tool],
    choice: ToolChoice,
    *,
    parallel: bool,
    opens_reasoning: bool,
) -> Grammar | None:
    """What holds the model to the tools. None where it is free to do as it likes.

    Raises `UnsupportedParameter` for a forced call of a model that has no form for calls,
    `InvalidRequest` for the name of a tool that is not there.
    """
    tools = [tool for tool in tools if choice.allows(tool.name)]
    if choice.mode is ToolMode.NAMED and not tools:
        raise InvalidRequest(
            f"There is no tool named {choice.name!r} in tools.", param="tool_choice"
        )
    if not tools or not _is_needed(family, tools, choice, parallel=parallel):
        return None
    if not family.supports_calls:
        raise UnsupportedParameter(
            "This model's output has no known form for tool calls, so a call cannot be forced.",
            param="tool_choice",
        )
    shape = family.calls(tools, choice, parallel=parallel)
    is_after = opens_reasoning or family.starts_in_reasoning
    return as_grammar(family.after_reasoning(shape) if is_after else shape, "tools")


def _is_needed(
    family: GrammarFamily, tools: Sequence[Tool], choice: ToolChoice, *, parallel: bool
) -> bool:
    if choice.mode is not ToolMode.AUTO:
        return True
    is_narrow = choice.allowed is not None or any(tool.strict for tool in tools)
    return family.supports_calls and (is_narrow or not parallel)
