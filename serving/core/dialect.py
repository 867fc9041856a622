"""Where the two URL trees differ: OVMS's defaults under `/v3`, OpenAI's under `/v1`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Dialect:
    """The points on which the documents of the two systems disagree."""

    name: str
    # Completions without `max_tokens`: this many, or None for "until the model ends".
    completions_max_tokens: int | None
    # Whether the stop string belongs to streamed text when the client does not say.
    streams_stop_text: bool
    # `top_k` when sampling and the client does not say. None: all tokens.
    default_top_k: int | None
    # `incomplete_details.reason` of a response cut by its token limit.
    length_reason: str
    # `best_of` is the width of a search by beams, not a number of candidates to draw.
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
