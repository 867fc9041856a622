"""The URL trees of the API, which differ in their defaults."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Dialect:
    """The defaults of a URL tree: OVMS's under `/v3`, OpenAI's under `/v1` and here."""

    name: str  # "v1" or "v3", the first part of the URL
    # The default of `max_tokens` for completions. None: generate until the model ends.
    completions_max_tokens: int | None = 16
    streams_stop_text: bool = False  # the default of `include_stop_str_in_output` for streams
    default_top_k: int | None = None  # the default of `top_k` when sampling; None: all tokens
    # `incomplete_details.reason` of a response that reached its token limit.
    length_reason: str = "max_output_tokens"
    # Whether `best_of` is a beam width. Otherwise it is the number of sampled candidates.
    best_of_is_beams: bool = False
    # Whether the `text_offset` of completions counts from the start of the prompt in any case.
    offsets_include_prompt: bool = True
    # Whether a stream shows the first token, with or without text: before that token there is no
    # chunk, and no `response.in_progress`.
    shows_first_token: bool = False


V1: Final = Dialect("v1")
V3: Final = Dialect(
    "v3",
    None,
    streams_stop_text=True,
    default_top_k=40,
    length_reason="max_tokens",
    best_of_is_beams=True,
    offsets_include_prompt=False,
    shows_first_token=True,
)
DIALECTS: Final = {dialect.name: dialect for dialect in (V1, V3)}
