"""How far ahead tokens are proposed: the request's word first, then the model's
generation_config.json, then 5 tokens and words of up to 3 (the values that OVMS documents)."""

from __future__ import annotations

from typing import Final

from serving.core.errors import UnsupportedParameter
from serving.core.request import GenerationRequest, SpeculativeDecoding
from serving.flow.directory import Engine
from serving.transport.messages import SpeculationSpec

_NUM_TOKENS: Final = 5
_NGRAM_SIZE: Final = 3


def assist_spec(request: GenerationRequest, engine: Engine) -> SpeculationSpec | None:
    """None for a model that makes every token by itself. Raises `UnsupportedParameter` for
    a wish that this model cannot have."""
    asked, options = request.assistance, engine.entry.options
    _check(request, drafts=bool(options.draft_model), looks_up=options.prompt_lookup)
    if options.draft_model:
        return _draft_spec(asked, engine)
    if options.prompt_lookup:
        defaults = engine.assets.defaults
        return SpeculationSpec(
            num_tokens=asked.num_tokens or defaults.num_assistant_tokens or _NUM_TOKENS,
            max_ngram_size=asked.max_ngram_size or defaults.max_ngram_size or _NGRAM_SIZE,
        )
    return None


def _draft_spec(asked: SpeculativeDecoding, engine: Engine) -> SpeculationSpec:
    defaults = engine.assets.defaults
    if asked.num_tokens is not None:
        return SpeculationSpec(num_tokens=asked.num_tokens)
    if asked.confidence_threshold is not None:
        return SpeculationSpec(confidence_threshold=asked.confidence_threshold)
    if defaults.num_assistant_tokens is None and defaults.assistant_confidence_threshold:
        return SpeculationSpec(confidence_threshold=defaults.assistant_confidence_threshold)
    return SpeculationSpec(num_tokens=defaults.num_assistant_tokens or _NUM_TOKENS)


def _check(request: GenerationRequest, *, drafts: bool, looks_up: bool) -> None:
    asked = request.assistance
    if request.beams is not None and (drafts or looks_up):
        raise UnsupportedParameter(
            "This model checks tokens that are proposed ahead, and the engine cannot search by "
            "beams at the same time. Leave out `use_beam_search` and `best_of`.",
            param="use_beam_search",
        )
    for param, is_asked, is_possible, need in (
        (
            "num_assistant_tokens",
            asked.num_tokens,
            drafts or looks_up,
            "draft_model or prompt_lookup",
        ),
        ("assistant_confidence_threshold", asked.confidence_threshold, drafts, "draft_model"),
        ("max_ngram_size", asked.max_ngram_size, looks_up, "prompt_lookup"),
    ):
        if is_asked is not None and not is_possible:
            raise UnsupportedParameter(
                f"`{param}` is for models that are served with the option {need}, which this "
                "one is not. Leave it out.",
                param=param,
            )
