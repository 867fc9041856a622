"""The form that an answer must have: from the schemas, tools and grammars of a request to the
one grammar that holds its engine to them."""

from __future__ import annotations

import asyncio

from serving.constraints.answers import answer_grammar
from serving.constraints.grammars import tool_grammar
from serving.core.errors import InvalidRequest
from serving.core.request import GenerationRequest, Grammar, RawPrompts, ToolMode
from serving.flow.attempt import PLAIN
from serving.flow.directory import Engine
from serving.prompting.assets import Prompt


def check_form(request: GenerationRequest) -> None:
    """Raises `InvalidRequest` for an answer that would have to go on after its shape is
    complete: nothing that fits can follow then, and the engine would write anything."""
    if request.grammar is None and not request.must_call:
        return
    stopping = request.stopping
    for param, is_asked in (
        ("min_tokens", stopping.min_tokens > 0),
        ("ignore_eos", stopping.ignore_eos),
    ):
        if is_asked:
            raise InvalidRequest(
                f"`{param}` cannot go with structured output or a forced tool call: these end "
                "when they are complete. Leave one of them out.",
                param=param,
            )


async def form_grammar(
    request: GenerationRequest, engine: Engine, prompt: Prompt
) -> Grammar | None:
    """What every answer must be; `prompt` is the first of the request's. Raises
    `InvalidRequest`.

    A schema may take a part of a second to translate, so that is done in a thread: the
    streams of this process go on.
    """
    thinks = prompt.opens_reasoning
    if not _may_take_long(request):
        return _grammar(request, engine, opens_reasoning=thinks)
    return await asyncio.to_thread(_grammar, request, engine, opens_reasoning=thinks)


def _may_take_long(request: GenerationRequest) -> bool:
    """Whether there may be a schema to translate."""
    if request.grammar is not None or request.must_call:
        return True
    if isinstance(request.prompt, RawPrompts):
        return False
    tools = request.prompt.callable_tools
    is_held = not request.prompt.parallel_tool_calls or any(tool.strict for tool in tools)
    return bool(tools) and is_held


def _grammar(
    request: GenerationRequest, engine: Engine, *, opens_reasoning: bool
) -> Grammar | None:
    """Calls that were demanded come before the answer's shape."""
    wanted, prompt = request.grammar, request.prompt
    if isinstance(prompt, RawPrompts):
        # Raw prompts are completed as they are: no family's thoughts or marks are expected.
        return wanted and answer_grammar(PLAIN.grammar, wanted, opens_reasoning=False)
    if wanted is not None and not request.must_call:
        return answer_grammar(
            engine.family.grammar,
            wanted,
            opens_reasoning=opens_reasoning,
            tools=prompt.callable_tools if prompt.tool_choice.mode is ToolMode.AUTO else (),
            parallel=prompt.parallel_tool_calls,
        )
    return tool_grammar(
        engine.family.grammar,
        prompt.tools,
        prompt.tool_choice,
        parallel=prompt.parallel_tool_calls,
        opens_reasoning=opens_reasoning,
    )
