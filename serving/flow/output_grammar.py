"""The grammar of an answer: the request's schemas, tools and grammars become one grammar for
the engine."""

from vinery_serving.constraints.answers import answer_grammar, tool_grammar
from vinery_serving.constraints.family import GrammarFamily
from vinery_serving.core.errors import InvalidRequest
from vinery_serving.core.request import GenerationRequest, Grammar, RawPrompts, ToolMode
from vinery_serving.flow.directory import LoadedModel
from vinery_serving.prompting.assets import Prompt


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
    """Whether the request may have a schema or a pattern to translate. Even a short one may take
    long."""
    if request.grammar is not None or request.must_call:
        return True
    if isinstance(request.prompt, RawPrompts):
        return False
    tools = request.prompt.callable_tools
    is_constrained = not request.prompt.parallel_tool_calls or any(tool.strict for tool in tools)
    return bool(tools) and is_constrained


def output_grammar(
    request: GenerationRequest, model: LoadedModel, prompt: Prompt
) -> Grammar | None:
    """Return the grammar of every answer; `prompt` is the first of the request's. A forced tool
    call has precedence over the grammar of the answer. Raises `InvalidRequest`."""
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
