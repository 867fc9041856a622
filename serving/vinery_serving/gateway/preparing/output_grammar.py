"""The grammar of an answer: the request's schemas, tools and grammars become one grammar for
the engine."""

import json
from dataclasses import replace

from vinery_serving.core.errors import GrammarTooLarge, InvalidRequest
from vinery_serving.core.request import (
    GenerationRequest,
    Grammar,
    GrammarKind,
    RawPrompts,
    ToolMode,
)
from vinery_serving.gateway.engines.models import LoadedModel
from vinery_serving.grammars.answers import answer_grammar, tool_grammar
from vinery_serving.grammars.family import GrammarFamily
from vinery_serving.prompting.assets import Prompt
from vinery_serving.transport.messages import GrammarSpec


def check_output_grammar(request: GenerationRequest) -> None:
    """Raises `InvalidRequest` for parameters that make an answer continue after its grammar is
    complete: the engine would then generate text outside the grammar."""
    if request.grammar is None and not request.must_call:
        return
    stopping = request.stopping
    for param, is_set in (
        ("min_tokens", stopping.min_tokens > 0),
        ("ignore_eos", stopping.ignore_eos),
    ):
        if is_set:
            raise InvalidRequest(
                f"`{param}` cannot go with structured output or a forced tool call: these end "
                "when they are complete. Leave one of them out.",
                param=param,
            )


def may_have_grammar(request: GenerationRequest) -> bool:
    """Whether there may be a schema or a pattern to translate: even a short one may take long."""
    if request.grammar is not None or request.must_call:
        return True
    if isinstance(request.prompt, RawPrompts):
        return False
    tools = request.prompt.callable_tools
    is_constrained = not request.prompt.parallel_tool_calls or any(tool.strict for tool in tools)
    return bool(tools) and is_constrained


def output_grammar(
    request: GenerationRequest, model: LoadedModel, prompt: Prompt
) -> GrammarSpec | None:
    """Return the grammar of every answer; `prompt` is the request's first. Schemas that are not
    strict and are too large are left out. Raises `InvalidRequest`."""
    free_request, free_fields = _without_schemas(request)
    free = None
    if free_fields and (grammar := _grammar(free_request, model, prompt)):
        free = GrammarSpec(grammar.kind, grammar.source, unenforced=", ".join(free_fields))
    try:
        grammar = _grammar(request, model, prompt)
    except GrammarTooLarge:
        if free is None:
            raise
        return free
    return None if grammar is None else GrammarSpec(grammar.kind, grammar.source, free)


def _without_schemas(request: GenerationRequest) -> tuple[GenerationRequest, list[str]]:
    """The request without the schemas that are not strict, and the fields of these."""
    wanted, asked, fields = request.grammar, request.prompt, list[str]()
    if wanted is None and not request.must_call:
        return request, fields
    if not isinstance(asked, RawPrompts) and asked.callable_tools:
        tools = tuple(
            tool
            if tool.strict or tool.is_custom or not tool.parameters
            else replace(tool, parameters={"type": "object"})
            for tool in asked.tools
        )
        fields += ["tools.parameters"] if tools != asked.tools else []
        asked = replace(asked, tools=tools)
    is_schema = wanted is not None and wanted.kind is GrammarKind.JSON_SCHEMA
    if wanted is not None and is_schema and not (wanted.is_strict or request.must_call):
        is_object = json.loads(wanted.source).get("type") == "object"
        wanted = replace(wanted, source='{"type":"object"}' if is_object else "{}")
        fields += [wanted.param or ""] if wanted != request.grammar else []
    return replace(request, prompt=asked, grammar=wanted), fields


def _grammar(request: GenerationRequest, model: LoadedModel, prompt: Prompt) -> Grammar | None:
    """A forced tool call has precedence over the grammar of the answer."""
    wanted, asked, family = request.grammar, request.prompt, model.family.grammar
    if isinstance(asked, RawPrompts):
        # Raw prompts are completed without the reasoning or tool calls of a family.
        return wanted and answer_grammar(GrammarFamily(), wanted, opens_reasoning=False)
    if wanted is not None and not request.must_call:
        return answer_grammar(
            family,
            wanted,
            opens_reasoning=prompt.opens_reasoning,
            tools=asked.callable_tools if asked.tool_choice.mode is ToolMode.AUTO else (),
            parallel=asked.parallel_tool_calls,
        )
    return tool_grammar(
        family,
        asked.tools,
        asked.tool_choice,
        parallel=asked.parallel_tool_calls,
        opens_reasoning=prompt.opens_reasoning,
    )
