"""A request's instructions for the logits: log-probabilities, biases, forbidden words, logits
processors, reasoning budgets."""

from collections.abc import Iterable
from dataclasses import fields
from typing import Final

from vinery_serving.core.errors import UnsupportedParameter
from vinery_serving.core.request import (
    GenerationRequest,
    LogprobsOptions,
    RawPrompts,
    Sampling,
    Steering,
)
from vinery_serving.gateway.engines.models import LoadedModel
from vinery_serving.prompting.assets import Prompt
from vinery_serving.prompting.tokenizer import Tokenizer
from vinery_serving.transport.messages import Hello, LogitsSpec, LogprobsSpec, ReasoningBudget

# The engine changes logits by these as the client sent them.
_COPIED: Final = ({each.name for each in fields(Steering)} & {*LogitsSpec.__struct_fields__}) - {
    "bad_words",
    "processor_args",
}


def logits_spec(
    request: GenerationRequest, model: LoadedModel, prompt: Prompt, sampling: Sampling
) -> LogitsSpec | None:
    """Return the instructions for the engine's logits hook; None for the many requests that do
    not need it. Raises `InvalidRequest` for a token outside the vocabulary."""
    steering, logprobs, assets = request.steering, request.logprobs, model.assets
    wants_logprobs = logprobs.num_top is not None or logprobs.num_top_of_prompt is not None
    budget = _reasoning_budget(request, model, prompt)
    if steering.first_field is None and not wants_logprobs and budget is None:
        return None
    for param, ids in (
        ("logit_bias", [id_ for id_, _ in steering.bias]),
        ("bad_words_token_ids", [id_ for word in steering.bad_word_ids for id_ in word]),
        ("allowed_token_ids", steering.allowed_ids),
        ("logprob_token_ids", logprobs.token_ids),
    ):
        assets.check_ids(ids, param)
    return LogitsSpec(
        **{name: getattr(steering, name) for name in _COPIED},
        bad_words=(*steering.bad_word_ids, *_spellings(steering.bad_words, assets.tokenizer)),
        processor_args=None if steering.processor_args is None else dict(steering.processor_args),
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
    if request.steering.processor_args is not None and not hello.has_processors:
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
