"""The fields that are not honoured here, and why.

`REFUSED` is the one list of parameters that would change what is generated or returned, and
that this server does not implement. Asking for one is an error that names it: an answer that
silently ignores a wish is worse than none. To implement one, delete its row.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeVar

from serving.core.errors import UnsupportedParameter
from serving.core.request import Endpoint
from serving.protocols.reading import Wire, read_model, read_object

WireT = TypeVar("WireT", bound=Wire)

# Field names, each with the values that ask for nothing special. Null always does.
_Refusals = Mapping[str, tuple[object, ...]]

_REFUSED_EVERYWHERE: _Refusals = {
    # Probabilities and ids in the answer.
    "return_token_offsets": (False,),
    "return_weight_versions": (False,),
    "routed_experts_prompt_start": (0,),
    "include_draft_logprobs": (False,),
    "watermarking": (False,),
    # What no request can bring or leave out.
    "logits_processors": ([],),
    "detokenize": (True,),
    # The prompt.
    "prompt_embeds": ([],),
    "kv_transfer_params": ({},),
    "ec_transfer_params": ({},),
    "mm_hashes": ([],),
    "mm_payload": ({},),
    "mm_processor_kwargs": ({},),
    "media_io_kwargs": ({},),
}

_REFUSED_IN_CONVERSATIONS: _Refusals = {
    "modalities": (["text"], []),
    "audio": (),
    "chunk_frames": (),
    "moderation": (),
    "web_search_options": (),
}

REFUSED: Mapping[Endpoint, _Refusals] = {
    Endpoint.CHAT: {**_REFUSED_EVERYWHERE, **_REFUSED_IN_CONVERSATIONS},
    Endpoint.COMPLETIONS: {
        **_REFUSED_EVERYWHERE,
    },
    Endpoint.RESPONSES: {
        **_REFUSED_EVERYWHERE,
        "prompt_logprobs": (),
        "return_token_ids": (False,),
        "return_prompt_text": (False,),
        **_REFUSED_IN_CONVERSATIONS,
        "echo": (False,),
        "prompt_token_ids": ([],),
        "access_programs": (),
        "background": (False,),
        "background_options": (),
        "context_management": ([],),
        "conversation": (),
        "enable_response_messages": (False,),
        "previous_input_messages": ([],),
        "personality": (),
        "previous_response_id": (),
        "prompt": (),
    },
}

_TEXT_ONLY = "its models read text only"
_NO_PLACE = "this endpoint's answer has no place for {}; use `{}`"

# Why, for each of them: what the engine cannot do, or what kind of server it would take.
_REASONS: Mapping[str, str] = {
    "access_programs": "they belong to OpenAI's own models",
    "audio": "its models write text only",
    "background": "no answers are stored",
    "background_options": "no answers are stored",
    "chunk_frames": "its models write text only",
    "context_management": "no conversations are stored",
    "conversation": "no conversations are stored; send all of it in `input`",
    "detokenize": "answers are text; ask for `return_token_ids` to have the ids beside it",
    "ec_transfer_params": f"{_TEXT_ONLY}, so that there is no cache of encoded media to hand over",
    "echo": _NO_PLACE.format("a prompt", "completions"),
    "enable_response_messages": _NO_PLACE.format(
        "what the model read and wrote word for word", "completions"
    ),
    "include_draft_logprobs": "the engine does not tell how likely a draft model found its tokens",
    "kv_transfer_params": "each engine reads its prompts itself and hands its cache to no other",
    "logits_processors": "code cannot come with a request; an administrator registers "
    "processors, and `logits_processors_args` speaks to them",
    "media_io_kwargs": _TEXT_ONLY,
    "mm_hashes": _TEXT_ONLY,
    "mm_payload": _TEXT_ONLY,
    "mm_processor_kwargs": _TEXT_ONLY,
    "modalities": "its models write text only",
    "moderation": "it has no moderation model",
    "personality": "the presets belong to OpenAI's own models; use `instructions`",
    "previous_input_messages": "they are in the form of a single family of models; send the "
    "whole conversation in `input`",
    "previous_response_id": "no answers are stored; send the whole conversation in `input`",
    "prompt": "no prompts are stored; use `instructions` and `input`",
    "prompt_embeds": "the engine takes the tokens of a prompt, not their embeddings; send text",
    "prompt_logprobs": _NO_PLACE.format("them", "completions"),
    "prompt_token_ids": "this endpoint reads `input`; use `chat/completions` or `completions`",
    "return_prompt_text": _NO_PLACE.format("it", "chat/completions"),
    "return_token_ids": _NO_PLACE.format("them", "completions"),
    # vLLM reads it here too, and only its render endpoints ever answer it.
    "return_token_offsets": "the places of a prompt's tokens are for an endpoint that only "
    "renders prompts; use `/tokenize` with `return_token_strs`",
    "return_weight_versions": "the weights of a model do not change while it is served, so that "
    "there are no versions to tell",
    "routed_experts_prompt_start": "the engine does not tell which experts computed a token",
    "watermarking": "the engine draws tokens without a watermark",
    "web_search_options": "it searches nothing; give the model a function that does",
}


def read_body(endpoint: Endpoint, model: type[WireT], body: bytes) -> WireT:
    """`body` as `model`. Raises `InvalidRequest`: before anything else about the first field
    of `REFUSED` that asks for something."""
    members = read_object(body)
    _refuse_unhonoured(endpoint, members)
    return read_model(model, members)


def _refuse_unhonoured(endpoint: Endpoint, members: Mapping[str, Any]) -> None:
    refused = REFUSED[endpoint]
    for name, value in members.items():
        if value is None or name not in refused:
            continue
        harmless = refused[name]
        if not any(_is_same(value, default) for default in harmless):
            raise UnsupportedParameter(refusal(endpoint, name), param=name)


def _is_same(value: object, default: object) -> bool:
    """Equality of JSON values: to Python, but not to JSON, false is 0."""
    return isinstance(value, bool) == isinstance(default, bool) and value == default


def refusal(endpoint: Endpoint, name: str) -> str:
    """What a client is told that asks `endpoint` for this field of `REFUSED`."""
    harmless = REFUSED[endpoint][name]
    or_default = f", or set it to {json.dumps(harmless[0])}" if harmless else ""
    return f"`{name}` is not supported by this server: {_REASONS[name]}. Leave it out{or_default}."
