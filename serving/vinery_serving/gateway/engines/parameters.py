"""The parameters that the administrator of a model decides: defaults, minima and maxima.

A default of the model's options comes before that of its generation_config.json. A value that the
request names and that is outside of the limits is refused; one that it does not name is moved into
them.
"""

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from vinery_serving.core.errors import InvalidRequest
from vinery_serving.core.request import Endpoint, GenerationRequest, RawPrompts, Sampling
from vinery_serving.engine.options import EngineOptions
from vinery_serving.prompting.folder import GenerationDefaults

_FIELD_NAMES: Final = {"max_tokens": "max_new_tokens"}


def defaults_of(options: EngineOptions, folder: GenerationDefaults) -> GenerationDefaults:
    """Return the defaults of the options, and those of the folder where the options have none."""
    named = {} if options.defaults is None else options.defaults.named
    values = {_FIELD_NAMES.get(name, name): value for name, value in named.items()}
    if "temperature" in values:
        values["do_sample"] = True
    return replace(folder, **values)  # type: ignore[arg-type]


def with_returns(request: GenerationRequest, options: EngineOptions) -> GenerationRequest:
    """Return the request with the defaults of what an answer has. An answer in a given form has
    no reasoning, and one that fills in the middle no calls."""
    own, prompt = options.defaults, request.prompt
    defaults = (None, None) if own is None else (own.return_arrival_time, own.parse_output)
    shows = _first(request.shows_arrival, defaults[0])
    parses = _first(request.parses_output, defaults[1])
    may_parse = isinstance(prompt, RawPrompts) and prompt.suffix is None and not request.grammar
    has_member = request.endpoint in (Endpoint.CHAT, Endpoint.COMPLETIONS)
    if not (shows or parses):
        return request
    return replace(request, shows_arrival=shows and has_member, parses_output=parses and may_parse)


def _first(*flags: bool | None) -> bool:
    return next((flag for flag in flags if flag is not None), False)


def check_parameters(request: GenerationRequest, options: EngineOptions, model: str) -> None:
    """Raises `InvalidRequest` for a value that is outside of the limits. A beam search does not
    sample, so they do not concern it."""
    if request.beams is not None:
        return
    for name, least, most in _limits(options):
        value = getattr(request.sampling, name)
        if value is None:
            continue
        word = "least" if _rank(name, value) < least else "most"
        limit = least if word == "least" else most
        if word == "least" or _rank(name, value) > most:
            raise InvalidRequest(
                f"`{name}` must be at {word} {limit:g}, the limit of the model {model}.",
                param=name,
            )


def limited(sampling: Sampling, options: EngineOptions) -> Sampling:
    """Return the values within the limits. Those that the request names are already."""
    moved: dict[str, Any] = {}
    for name, least, most in _limits(options):
        value = getattr(sampling, name)
        within = min(max(_rank(name, value), least), most)
        if within != _rank(name, value):
            moved[name] = int(within) if name == "top_k" else within
    return replace(sampling, **moved) if moved else sampling


def _limits(options: EngineOptions) -> Iterator[tuple[str, float, float]]:
    """Yield each parameter that has a limit, with its least and its largest value."""
    least = {} if options.minima is None else options.minima.named
    most = {} if options.maxima is None else options.maxima.named
    for name in least.keys() | most.keys():
        yield name, least.get(name, -math.inf), _rank(name, most.get(name, math.inf))


def _rank(name: str, value: float) -> float:
    """Return a number by which values compare: 0 and -1 of `top_k` mean all tokens, the most."""
    return math.inf if name == "top_k" and value <= 0 else value
