"""What the answer repeats of its request, with OpenAI's defaults for what was not said."""

from __future__ import annotations

from collections.abc import Sequence

from serving.core.request import TextGrammar, Tool, ToolChoice
from serving.protocols.constraints import ResponseFormat, TextFormat
from serving.protocols.labels import PromptCacheOptions
from serving.protocols.responses.body import ReasoningOptions, ResponsesBody, TextOptions
from serving.protocols.tools import CallableTool, HostedTool, NamespaceTool, echoed_choice

Members = dict[str, object]


def echo(wire: ResponsesBody, tools: Sequence[Tool]) -> Members:
    """The members of the answer that come from the request. `tools`: those that are used."""
    return {
        "instructions": wire.instructions,
        "max_output_tokens": wire.output_limit,
        "max_tool_calls": wire.max_tool_calls,
        "previous_response_id": None,
        "tools": [_tool(tool) for tool in wire.tools or () if not isinstance(tool, HostedTool)],
        "tool_choice": echoed_choice(wire.tool_choice or ToolChoice(), tools),
        "parallel_tool_calls": wire.parallel_tool_calls is not False,
        "reasoning": _reasoning(wire.reasoning or ReasoningOptions()),
        "text": _text(wire.text or TextOptions(), wire.response_format),
        "temperature": _or(wire.temperature, 1.0),
        "top_p": _or(wire.top_p, 1.0),
        "presence_penalty": _or(wire.presence_penalty, 0.0),
        "frequency_penalty": _or(wire.frequency_penalty, 0.0),
        "top_logprobs": wire.top_logprobs or 0,
        "truncation": wire.truncation or "disabled",
        # There is one tier, so whichever was asked for, the default served.
        "service_tier": "default",
        # Nothing is stored, whatever was asked: the truth is what counts here.
        "store": False,
        "background": False,
        "metadata": wire.metadata or {},
        "user": wire.user,
        "safety_identifier": wire.safety_identifier,
        "prompt_cache_key": wire.prompt_cache_key,
        "prompt_cache_retention": _retention(wire.prompt_cache_retention),
        **_cache_options(wire.prompt_cache_options),
    }


def _or(number: float | None, default: float) -> float:
    return default if number is None else number


def _retention(asked: str | None) -> str | None:
    return "in_memory" if asked == "in-memory" else asked


def _cache_options(asked: PromptCacheOptions | None) -> Members:
    """Strict clients want all of it or nothing."""
    if asked is None:
        return {}
    options = {"mode": asked.mode or "implicit", "ttl": asked.ttl or "30m"}
    return {"prompt_cache_options": options}


def _reasoning(asked: ReasoningOptions) -> Members:
    echoed: Members = {
        "effort": asked.effort,
        "summary": asked.summary or asked.generate_summary,
    }
    others = {"context": asked.context, "mode": asked.mode}
    return echoed | {name: value for name, value in others.items() if value is not None}


def _text(asked: TextOptions, chat_form: ResponseFormat | None) -> Members:
    wanted = asked.format or _flattened(chat_form)
    return {"format": _format(wanted), "verbosity": asked.verbosity or "medium"}


def _flattened(chat_form: ResponseFormat | None) -> TextFormat | None:
    if chat_form is None:
        return None
    schema = chat_form.json_schema
    members = {} if schema is None else schema.model_dump(by_alias=True)
    return TextFormat.model_validate({"type": chat_form.type, **members})


def _format(wanted: TextFormat | None) -> Members:
    if wanted is None or wanted.tag is not None:
        return {"type": "text"}  # strict clients know no tags
    if wanted.type != "json_schema":
        return {"type": wanted.type}
    return {
        "type": "json_schema",
        # Strict clients need a name, and not every other client sends one.
        "name": wanted.name or "response",
        "description": wanted.description,
        "schema": wanted.schema_,
        "strict": wanted.strict,
    }


def _tool(tool: NamespaceTool | CallableTool) -> Members:
    if not isinstance(tool, NamespaceTool):
        return _member(tool.to_core(""))
    return {
        "type": "namespace",
        "name": tool.name,
        "description": tool.description or "",
        "tools": [_member(each) for each in tool.members("")],
    }


def _member(tool: Tool) -> Members:
    if tool.is_custom:
        named = {"type": "custom", "name": tool.name, "description": tool.description}
        return {**named, "format": _input_format(tool.input_grammar)}
    return {
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters,
        "strict": tool.strict,
    }


def _input_format(grammar: TextGrammar | None) -> Members:
    if grammar is None:
        return {"type": "text"}
    syntax, definition = grammar.syntax.value, grammar.definition
    return {"type": "grammar", "syntax": syntax, "definition": definition}
