"""A request's instructions for the logits: log-probabilities, biases, forbidden words, logits
processors, reasoning budgets, and the grammar of the answer."""

import json
from collections.abc import Iterable
from dataclasses import replace

from vinery_serving.core.errors import GrammarTooLarge, UnsupportedParameter
from vinery_serving.core.request import (
    GenerationRequest,
    Grammar,
    GrammarKind,
    LogprobsOptions,
    RawPrompts,
    Sampling,
    ToolMode,
)
from vinery_serving.gateway.engines.models import LoadedModel
from vinery_serving.grammars.answers import answer_grammar, tool_grammar
from vinery_serving.grammars.family import GrammarFamily
from vinery_serving.prompting.assets import Prompt
from vinery_serving.prompting.tokenizer import Tokenizer
from vinery_serving.transport.messages import (
    GrammarSpec,
    Hello,
    LogitsSpec,
    LogprobsSpec,
    ReasoningBudget,
)


def logits_spec(
    request: GenerationRequest, model: LoadedModel, prompt: Prompt, sampling: Sampling
) -> LogitsSpec | None:
    """Return the instructions for the engine's logits hook; None for the many requests that do
    not need it. Raises `InvalidRequest` for a token outside the vocabulary."""
    steering, logprobs, assets = request.steering, request.logprobs, model.assets
    args = steering.logits_processors_args
    wants_logprobs = logprobs.num_top is not None or logprobs.num_top_of_prompt is not None
    budget = _reasoning_budget(request, model, prompt)
    if steering.first_field is None and not wants_logprobs and budget is None:
        return None
    for param, ids in (
        ("logit_bias", [id_ for id_, _ in steering.logit_bias]),
        ("bad_words_token_ids", [id_ for word in steering.bad_words_token_ids for id_ in word]),
        ("allowed_token_ids", steering.allowed_token_ids),
        ("logprob_token_ids", logprobs.token_ids),
    ):
        assets.check_ids(ids, param)
    return LogitsSpec(
        bias=steering.logit_bias,
        allowed_ids=steering.allowed_token_ids,
        bad_words=(
            *steering.bad_words_token_ids,
            *_spellings(steering.bad_words, assets.tokenizer),
        ),
        processor_args=None if args is None else dict(args),
        budget=budget,
        logprobs=_logprobs_spec(logprobs.num_top, logprobs, sampling),
        prompt_logprobs=_logprobs_spec(num_top_of_prompt(request), logprobs, sampling),
    )


def num_top_of_prompt(request: GenerationRequest) -> int | None:
    """Return the number of alternatives for each token of the prompt; None: the prompt is not
    scored. An echoed prompt is scored if the answer is."""
    logprobs = request.logprobs
    if logprobs.num_top_of_prompt is not None:
        return logprobs.num_top_of_prompt
    is_echoed = isinstance(request.prompt, RawPrompts) and request.prompt.echo
    return logprobs.num_top if is_echoed else None


def check_engine(request: GenerationRequest, hello: Hello) -> None:
    """Raises `UnsupportedParameter` for a parameter that the connected engine cannot support."""
    if request.handling.cache_salt is not None and not hello.supports_cache_salt:
        raise UnsupportedParameter(
            "This model cannot separate prompts in its prefix cache: a salt cannot be added to "
            "its graph. Leave `cache_salt` out, or ask the administrator to turn the model's "
            "option enable_prefix_caching off.",
            param="cache_salt",
        )
    field = _first_field(request)
    if field is None:
        return
    if not hello.has_logits_hook:
        raise UnsupportedParameter(
            f"`{field}` is not available for this model: on its device, logits can be neither "
            "read nor changed. Leave it out.",
            param=field,
        )
    if request.steering.logits_processors_args is not None and not hello.has_processors:
        raise UnsupportedParameter(
            "This model has no logits processors. Leave the arguments out, or ask its "
            "administrator to set the option logits_processors.",
            param="logits_processors_args",
        )
    if num_top_of_prompt(request) is not None and not hello.can_score_prompts:
        raise UnsupportedParameter(
            "This model has no log-probabilities of prompts: it takes pictures, or its option "
            "enable_prefix_caching is on. Leave them out.",
            param="prompt_logprobs",
        )


def _first_field(request: GenerationRequest) -> str | None:
    if request.steering.first_field is not None:
        return request.steering.first_field
    if request.logprobs.num_top is not None:
        return "logprobs"
    if request.logprobs.num_top_of_prompt is not None:
        return "prompt_logprobs"
    has_budget = request.stopping.max_reasoning_tokens is not None
    return "thinking_token_budget" if has_budget else None


def _logprobs_spec(
    num_top: int | None, options: LogprobsOptions, sampling: Sampling
) -> LogprobsSpec | None:
    if num_top is None:
        return None
    return LogprobsSpec(
        num_top=num_top,
        token_ids=options.token_ids,
        # Greedy decoding has a temperature of 0, which scales nothing.
        temperature=(options.is_temperature_scaled and sampling.temperature) or 1.0,
        top_p=(options.is_top_p_normalized and sampling.top_p) or 1.0,
    )


def _spellings(words: Iterable[str], tokenizer: Tokenizer) -> list[tuple[int, ...]]:
    """The tokens of each word at the beginning of a text and after a space."""
    found: dict[tuple[int, ...], None] = {}
    for word in words:
        for text in (word, f" {word.lstrip()}"):
            found[tuple(tokenizer.encode(text))] = None
    return [ids for ids in found if ids]


def _reasoning_budget(
    request: GenerationRequest, model: LoadedModel, prompt: Prompt
) -> ReasoningBudget | None:
    """The limit of reasoning tokens; None where there is no limit or the model does not reason.
    Raises `UnsupportedParameter` for an explicit limit that cannot be enforced."""
    requested, tags = request.stopping.max_reasoning_tokens, model.family.parser.reasoning
    limit = prompt.reasoning_budget if requested is None else requested
    if requested is None and request.beams is not None:
        return None  # beam search has no hook, and the limit of an effort is not a guarantee
    if limit is None or tags is None or isinstance(request.prompt, RawPrompts):
        return None
    encode = model.assets.tokenizer.encode
    end = tuple(encode(tags.close.text))
    if len(end) != 1:
        # A text has several tokenizations, and the engine can recognize only one.
        if requested is None:
            return None
        raise UnsupportedParameter(
            "This model ends its reasoning with a text that is not a single token, so its "
            "reasoning cannot be limited. Leave out `thinking_token_budget` and "
            "`reasoning_max_tokens`.",
            param="thinking_token_budget",
        )
    return ReasoningBudget(
        max_tokens=limit,
        is_open=prompt.opens_reasoning or tags.starts_open,
        start=tuple(encode(tags.open.text)),
        end=end,
        closing_ids=tuple(encode(tags.closing)),
    )


# -- The grammar of an answer: schemas, tools and grammars of the request become one


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
