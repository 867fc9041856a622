"""What only `completions` is asked wrongly."""

from __future__ import annotations

from collections.abc import Sequence

from docs.refusals.row import INVALID, ONE_KIND, Row, missing, wrong

ROWS: Sequence[Row] = (
    # Formats
    missing("response_format.json_schema.schema", {"response_format": {"type": "json_schema"}}),
    Row(
        "structured_outputs.choice",
        {"response_format": {"type": "json_object"}, "structured_outputs": {"choice": ["a"]}},
        INVALID,
        "`response_format` and `structured_outputs.choice` exclude each other: an answer has one form. Leave one of them out.",
    ),
    # Prompts
    missing("prompt", {"prompt": None}),
    wrong(
        "prompt", {"prompt": 5},
        "must be a string, an array of strings, or one or more arrays of token ids",
    ),
    wrong("prompt", {"prompt": []}, "must not be empty"),
    wrong("prompt", {"prompt": [[]]}, "must not hold an empty array of token ids"),
    wrong("prompt", {"prompt": ["a", 1]}, ONE_KIND),
    wrong("prompt", {"prompt": [1, True]}, ONE_KIND),
    wrong("prompt", {"prompt": [-1]}, ONE_KIND),
    wrong("prompt", {"prompt": [2**31]}, ONE_KIND),
    wrong("prompt", {"prompt": [[1], "a"]}, ONE_KIND),
    wrong(
        "prompt", {"prompt": ["a"] * 99, "n": 99},
        "asks for more than 2048 answers: prompts times `n`",
    ),
    wrong("max_tokens", {"max_tokens": 0}, "must be at least 1 unless `echo` is true"),
    wrong("echo", {"echo": "yes"}, "must be true or false"),
    wrong("suffix", {"suffix": 1}, "must be a string"),
    wrong("prompt_token_ids", {"prompt_token_ids": "a"}, "must be one or more arrays of token ids"),
    # What else OpenVINO Model Server is asked wrongly
    wrong("max_tokens", {"max_tokens": -1}, "must be at least 0"),
    wrong(
        "best_of", {"best_of": 2, "stream": True},
        "above `n` cannot be streamed: which answers are the best is known at the end. Set `stream` to false",
        trees=("v1",),
    ),
    wrong("logprobs", {"logprobs": True}, "must be an integer"),
    wrong("logprobs", {"logprobs": 21}, "must be at most 20"),
    wrong("logprobs", {"logprobs": -1}, "must be at least 0"),
    wrong(
        "prompt_logprobs", {"prompt": "a", "stream": True, "prompt_logprobs": 1},
        "are not available when `stream` is true",
    ),
)  # fmt: skip
