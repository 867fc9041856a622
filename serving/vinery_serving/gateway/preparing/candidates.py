"""Requests for the best of several answers: sampled candidates and beam search."""

import math
from dataclasses import replace
from itertools import groupby

from vinery_serving.core.errors import InvalidRequest
from vinery_serving.core.request import NEUTRAL, SAMPLERS, GenerationRequest
from vinery_serving.core.result import ChoiceResult, Result


def check_beam_search(request: GenerationRequest) -> None:
    """Raises `InvalidRequest` for parameters that the engine's beam search ignores: sampling
    parameters, grammars and changed logits do not affect candidates."""
    if request.beams is None:
        return
    stopping, logprobs = request.stopping, request.logprobs
    grammar_param = None if request.grammar is None else request.grammar.param
    for param, is_set in (
        *((name, _is_set(name, getattr(request.sampling, name))) for name in SAMPLERS),
        (grammar_param, request.grammar is not None),
        ("tool_choice", request.must_call),
        ("logprobs", logprobs.num_top is not None),
        ("prompt_logprobs", logprobs.num_top_of_prompt is not None),
        (request.steering.first_field, request.steering.first_field is not None),
        ("thinking_token_budget", stopping.max_reasoning_tokens is not None),
    ):
        if is_set:
            raise InvalidRequest(
                f"`{param}` cannot go with beam search, which does not sample and does not let "
                "the server change its candidates. Leave it out, or leave out "
                "`use_beam_search` and, under /v3, `best_of`.",
                param=param,
            )
    if request.beams.no_repeat_ngram_size and request.handling.cache_salt is not None:
        raise InvalidRequest(
            "`cache_salt` cannot go with `no_repeat_ngram_size`: the engine finds repetitions by "
            "the ids of the prompt's tokens, which the salt changes. Leave one of them out.",
            param="cache_salt",
        )


def _is_set(sampler: str, value: float | None) -> bool:
    """Whether the value of a request would change which tokens are drawn."""
    is_all = sampler == "top_k" and value == -1
    return not is_all and sampler != "seed" and value not in (None, getattr(NEUTRAL, sampler))


def with_candidates(request: GenerationRequest) -> GenerationRequest:
    """Return the request for all candidates, with the log-probabilities that rank them."""
    if request.num_candidates is None:
        return request
    logprobs = replace(request.logprobs, num_top=request.logprobs.num_top or 0)
    return replace(request, n=request.num_candidates, logprobs=logprobs)


def best_choices(result: Result, *, num_candidates: int, num_returned: int) -> Result:
    """Return the result with the `num_returned` best of each prompt's `num_candidates` choices, in
    descending order of the mean log-probability of a choice's tokens."""
    if num_returned == num_candidates:
        return result
    chosen: list[ChoiceResult] = []
    for _, candidates in groupby(result.choices, lambda choice: choice.index // num_candidates):
        best = sorted(
            candidates,
            key=lambda each: -math.inf if each.mean_logprob is None else each.mean_logprob,
            reverse=True,
        )[:num_returned]
        chosen += [replace(each, index=len(chosen) + at) for at, each in enumerate(best)]
    return replace(result, choices=tuple(chosen))
