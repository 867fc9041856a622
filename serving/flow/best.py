"""The best of several answers: candidates that are drawn, and searches by beams."""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby

from serving.core.errors import InvalidRequest
from serving.core.request import GenerationRequest, Grammar, LogprobsOptions
from serving.core.result import ChoiceResult, Result
from serving.transport.messages import BeamSpec


def check_search(request: GenerationRequest) -> None:
    """Raises `InvalidRequest` for wishes that the engine's search by beams cannot honour: it
    draws nothing, and neither grammars nor changed logits reach its candidates."""
    if request.beams is None:
        return
    sampling, stopping = request.sampling, request.stopping
    wish: LogprobsOptions = request.logprobs
    for param, is_asked in (
        ("temperature", bool(sampling.temperature)),
        ("top_p", sampling.top_p not in (None, 1)),
        ("top_k", sampling.top_k not in (None, 0, -1)),
        ("min_p", bool(sampling.min_p)),
        ("presence_penalty", bool(sampling.presence_penalty)),
        ("frequency_penalty", bool(sampling.frequency_penalty)),
        ("repetition_penalty", sampling.repetition_penalty not in (None, 1)),
        (_form_field(request.grammar), request.grammar is not None),
        ("tool_choice", request.must_call),
        ("logprobs", wish.num_top is not None),
        ("prompt_logprobs", wish.num_top_of_prompt is not None),
        (request.steering.first_field, request.steering.first_field is not None),
        ("thinking_token_budget", stopping.max_reasoning_tokens is not None),
    ):
        if is_asked:
            raise InvalidRequest(
                f"`{param}` cannot go with a search by beams, which draws no tokens and whose "
                "candidates the engine keeps to itself. Leave it out, or search without "
                "`use_beam_search` and, under /v3, `best_of`.",
                param=param,
            )
    if request.beams.no_repeat_ngram_size and request.handling.cache_salt is not None:
        raise InvalidRequest(
            "`cache_salt` cannot go with `no_repeat_ngram_size`: the engine looks for what "
            "repeats in the ids of the prompt's tokens, which the salt changes. Leave one of "
            "them out.",
            param="cache_salt",
        )


def beam_spec(request: GenerationRequest) -> BeamSpec | None:
    """What the engine is told of the search, if there is one."""
    beams = request.beams
    if beams is None:
        return None
    return BeamSpec(
        width=beams.width,
        length_penalty=beams.length_penalty,
        early_stopping=(
            "never" if beams.stops_early is None else "early" if beams.stops_early else "heuristic"
        ),
        no_repeat_ngram_size=beams.no_repeat_ngram_size,
    )


def with_candidates(request: GenerationRequest) -> GenerationRequest:
    """The request for all candidates, with the probabilities that decide among them."""
    if request.num_candidates is None:
        return request
    wish = request.logprobs
    return replace(
        request, n=request.num_candidates, logprobs=replace(wish, num_top=wish.num_top or 0)
    )


def the_best(result: Result, *, num_candidates: int, num_returned: int) -> Result:
    """Of the `num_candidates` choices of each prompt those whose tokens were the likeliest on
    average, the best first, as if they had been all."""
    if num_returned == num_candidates:
        return result
    chosen: list[ChoiceResult] = []
    for _, candidates in groupby(result.choices, lambda choice: choice.index // num_candidates):
        best = sorted(candidates, key=_rating, reverse=True)[:num_returned]
        chosen += [replace(each, index=len(chosen) + at) for at, each in enumerate(best)]
    return replace(result, choices=tuple(chosen))


def _rating(choice: ChoiceResult) -> float:
    return float("-inf") if choice.mean_logprob is None else choice.mean_logprob


def _form_field(grammar: Grammar | None) -> str | None:
    """What the client calls the form of its answer."""
    return None if grammar is None else grammar.param
