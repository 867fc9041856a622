"""What other servers refuse or get wrong, and this one takes: fields, and what becomes of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from serving.core.request import Endpoint

CHAT, COMPLETIONS, RESPONSES = Endpoint.CHAT, Endpoint.COMPLETIONS, Endpoint.RESPONSES
EVERY = tuple(Endpoint)

ACCEPTED: Sequence[tuple[Sequence[Endpoint], Mapping[str, Any], str]] = (
    (EVERY, {"stream": None}, "Null is absent, here and in every other field."),
    (EVERY, {"max_tokens": None}, "No limit but the endpoint's and the model's."),
    (EVERY, {"stop": []}, "No stop string."),
    (EVERY, {"unheard_of": {"a": 1}}, "Unknown fields are accepted."),
    (
        EVERY,
        {"stream": True, "stream_options": {"include_usage": True, "unheard_of": 1}},
        "Also on Responses, whose last event has the totals anyway.",
    ),
    (
        EVERY,
        {"stream": True, "stop": "a", "include_stop_str_in_output": False},
        "Stop strings are kept out of streams, too.",
    ),
    (EVERY, {"n": 2}, "Two sampled answers, without `best_of`."),
    (EVERY, {"n": 2, "stream": True}, "Both answers are streamed."),
    (EVERY, {"seed": -1}, "Negative seeds are folded."),
    (EVERY, {"top_k": 0}, "All tokens, as -1."),
    (EVERY, {"top_p": 0}, "The likeliest token only."),
    (EVERY, {"min_p": 1}, "The likeliest token only."),
    (EVERY, {"max_completion_tokens": 4294967295}, "As much as fits."),
    ((CHAT,), {"stream": True, "logprobs": True, "top_logprobs": 20}, "Streamed with the text."),
    ((COMPLETIONS,), {"stream": True, "logprobs": 20}, "Streamed with the text."),
    ((CHAT,), {"tools": [{"function": {"name": "f"}}]}, "A function needs no `type`."),
    ((COMPLETIONS,), {"logprobs": 0}, "The token's own, and no others."),
    ((COMPLETIONS,), {"prompt": ["a", "b"]}, "One answer to each."),
    ((COMPLETIONS,), {"prompt": [1, 2]}, "Token ids."),
    ((COMPLETIONS,), {"max_tokens": 0, "echo": True}, "The prompt, and nothing else."),
    ((CHAT,), {"messages": [{"role": "user", "content": []}]}, "An empty message."),
    ((CHAT,), {"messages": [{"role": "assistant", "content": None}]}, "An empty answer."),
    ((RESPONSES,), {"max_tokens": 5}, "The same as `max_output_tokens`, not ignored."),
    ((RESPONSES,), {"reasoning": {"effort": "minimal"}}, "All seven efforts, none of them lost."),
    ((RESPONSES,), {"instructions": "Be brief."}, "A system message."),
    ((RESPONSES,), {"text": {"format": {"type": "json_object"}}}, "Structured output."),
    ((RESPONSES,), {"truncation": "auto", "metadata": {"k": "v"}, "include": []}, "Honoured."),
)
