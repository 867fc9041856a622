"""The grammar of an answer: the request's schemas, tools and grammars become one grammar for
the engine."""

import asyncio

from serving.constraints.answers import answer_grammar, tool_grammar
from serving.constraints.family import GrammarFamily
from serving.core.errors import InvalidRequest
from serving.core.request import GenerationRequest, Grammar, RawPrompts, ToolMode
from serving.flow.directory import Engine
from serving.prompting.assets import Prompt


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


async def output_grammar(
    request: GenerationRequest, engine: Engine, prompt: Prompt
) -> Grammar | None:
    """Return the grammar of every answer; `prompt` is the first of the request's. Raises
    `InvalidRequest`.

    Translating a schema may take a part of a second, so it runs in a thread: the streams of
    this process continue.
    """
    opens_reasoning = prompt.opens_reasoning
    if not _may_take_long(request):
        return _grammar(request, engine, opens_reasoning=opens_reasoning)
    return await asyncio.to_thread(_grammar, request, engine, opens_reasoning=opens_reasoning)


def _may_take_long(request: GenerationRequest) -> bool:
    """Whether the request may have a schema to translate."""
    if request.grammar is not None or request.must_call:
        return True
    if isinstance(request.prompt, RawPrompts):
        return False
    tools = request.prompt.callable_tools
    is_constrained = not request.prompt.parallel_tool_calls or any(tool.strict for tool in tools)
    return bool(tools) and is_constrained


def _grammar(
    request: GenerationRequest, engine: Engine, *, opens_reasoning: bool
) -> Grammar | None:
    """A forced tool call has precedence over the grammar of the answer."""
    wanted, prompt, family = request.grammar, request.prompt, engine.family.grammar
    if isinstance(prompt, RawPrompts):
        # Raw prompts are completed without the reasoning or tool calls of a family.
        return wanted and answer_grammar(GrammarFamily(), wanted, opens_reasoning=False)
    if wanted is not None and not request.must_call:
        return answer_grammar(
            family,
            wanted,
            opens_reasoning=opens_reasoning,
            tools=prompt.callable_tools if prompt.tool_choice.mode is ToolMode.AUTO else (),
            parallel=prompt.parallel_tool_calls,
        )
    return tool_grammar(
        family,
        prompt.tools,
        prompt.tool_choice,
        parallel=prompt.parallel_tool_calls,
        opens_reasoning=opens_reasoning,
    )
