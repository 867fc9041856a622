"""The differences of the two URL trees: OVMS's defaults under `/v3`, OpenAI's under `/v1`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Dialect:
    """The points on which the documents of the two systems disagree."""

    name: str  # "v1" or "v3", the first part of the URL
    # The default of `max_tokens` for completions. None: generate until the model ends.
    completions_max_tokens: int | None
    # The default of `include_stop_str_in_output` for streams.
    streams_stop_text: bool
    # The default of `top_k` when sampling. None: all tokens.
    default_top_k: int | None
    # `incomplete_details.reason` of a response that reached its token limit.
    length_reason: str
    # Whether `best_of` is a beam width. Otherwise it is the number of sampled candidates.
    best_of_is_beams: bool


V1 = Dialect(
    "v1",
    16,
    streams_stop_text=False,
    default_top_k=None,
    length_reason="max_output_tokens",
    best_of_is_beams=False,
)
V3 = Dialect(
    "v3",
    None,
    streams_stop_text=True,
    default_top_k=40,
    length_reason="max_tokens",
    best_of_is_beams=True,
)
DIALECTS = {dialect.name: dialect for dialect in (V1, V3)}
