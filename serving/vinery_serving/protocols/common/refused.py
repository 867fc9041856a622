"""The parameters that this server knows, but does not implement.

Each parameter would change the answer, so the server refuses it by name: an answer that ignores a
parameter silently would mislead the client. To implement a parameter, delete its row.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from vinery_serving.core.errors import UnsupportedParameter
from vinery_serving.core.tasks import Endpoint


@dataclass(frozen=True, slots=True)
class Refused:
    """A parameter that the server refuses. `reason` follows "is not supported by this server".
    `harmless` holds the values that ask for the default; the server accepts them, and null."""

    reason: str
    harmless: tuple[object, ...] = ()

    def message(self, name: str) -> str:
        or_default = f", or set it to {json.dumps(self.harmless[0])}" if self.harmless else ""
        return f"`{name}` is not supported by this server: {self.reason}. Leave it out{or_default}."

    def check(self, path: str, value: object) -> None:
        """Raises `UnsupportedParameter` unless `value` asks for the default."""
        if not self.accepts(value):
            raise UnsupportedParameter(self.message(path), param=path)

    def accepts(self, value: object) -> bool:
        """Return whether `value` asks for the default."""
        return value is None or any(are_equal(value, default) for default in self.harmless)


def are_equal(value: object, other: object) -> bool:
    """As in JSON, false is not 0."""
    return value == other and isinstance(value, bool) == isinstance(other, bool)


Refusals = Mapping[str, Refused]
_OWN_PIXELS = "it scales pictures and videos by the model's own files; use `detail`"
_WRITES_TEXT = "its models write text only"
_NO_MEMBER = "the answer of this endpoint has no member for {}; use `{}`"

_EVERYWHERE: Refusals = {
    "return_token_offsets": Refused(
        "vLLM's endpoints that only render prompts use it; use `/tokenize` with "
        "`return_token_strs`",
        (False,),
    ),
    "return_weight_versions": Refused(
        "the weights of a model do not change while it is served", (False,)
    ),
    "routed_experts_prompt_start": Refused(
        "the engine does not report which experts computed a token", (0,)
    ),
    "include_draft_logprobs": Refused(
        "the engine does not report the log-probabilities of a draft model", (False,)
    ),
    "watermarking": Refused("the engine samples tokens without a watermark", (False,)),
    "logits_processors": Refused(
        "a request cannot contain code; an administrator registers processors, and "
        "`logits_processors_args` passes arguments to them",
        ([],),
    ),
    "detokenize": Refused("answers are text; use `return_token_ids` for the token ids", (True,)),
    "prompt_embeds": Refused(
        "the engine takes the tokens of a prompt, not their embeddings; send text", ([],)
    ),
    "kv_transfer_params": Refused(
        "each engine computes its own prompts and sends its cache to no other engine", ({},)
    ),
    "ec_transfer_params": Refused("pictures and videos are encoded where they are used", ({},)),
    "mm_payload": Refused("pictures and videos are parts of messages", ({},)),
    "mm_processor_kwargs": Refused(_OWN_PIXELS, ({},)),
    "media_io_kwargs": Refused(_OWN_PIXELS, ({},)),
}

_IN_CONVERSATIONS: Refusals = {
    "modalities": Refused(_WRITES_TEXT, (["text"], [])),
    "audio": Refused(_WRITES_TEXT),
    "chunk_frames": Refused(_WRITES_TEXT),
    "moderation": Refused("it has no moderation model"),
    "web_search_options": Refused("it has no web search; give the model a function that searches"),
}

_WITHOUT_CHOICES: Refusals = {
    "prompt_logprobs": Refused(_NO_MEMBER.format("them", "completions")),
    "return_token_ids": Refused(_NO_MEMBER.format("them", "completions"), (False,)),
    "return_prompt_text": Refused(_NO_MEMBER.format("it", "chat/completions"), (False,)),
    "return_arrival_time": Refused(_NO_MEMBER.format("it", "chat/completions"), (False,)),
    "echo": Refused(_NO_MEMBER.format("a prompt", "completions"), (False,)),
}

_IN_RESPONSES: Refusals = {
    **_WITHOUT_CHOICES,
    "prompt_token_ids": Refused(
        "this endpoint reads `input`; use `chat/completions` or `completions`", ([],)
    ),
    "access_programs": Refused("they belong to OpenAI's own models"),
    "background_options": Refused("background responses begin as soon as they can"),
    "enable_response_messages": Refused(
        _NO_MEMBER.format("the model's literal input and output", "completions"), (False,)
    ),
    "previous_input_messages": Refused(
        "their format belongs to one family of models; send the whole conversation in `input`",
        ([],),
    ),
    "personality": Refused("the presets belong to OpenAI's own models; use `instructions`"),
    "prompt": Refused("it stores no prompts; use `instructions` and `input`"),
}

_IN_MESSAGES: Refusals = {
    "stop": Refused("this endpoint reads `stop_sequences`", ([], "")),
    "n": Refused("a message is one answer", (1,)),
    "logprobs": Refused(_NO_MEMBER.format("them", "chat/completions"), (False, 0)),
    "top_logprobs": Refused(_NO_MEMBER.format("them", "chat/completions"), (0,)),
    **_WITHOUT_CHOICES,
    "prompt_token_ids": Refused(
        "this endpoint reads `messages`; use `chat/completions` or `completions`", ([],)
    ),
    "response_format": Refused("this endpoint reads `output_config.format` instead"),
    "container": Refused("it runs no code; give the model a tool that does"),
    "mcp_servers": Refused("it calls no tools; give the model tools", ([],)),
}

_SCALED = "how vectors are scaled is an option of the served model"
_TOKENS = "send token ids to choose the special tokens of a text"
_PAIR_TOKENS = "the model decides which special tokens are around the texts"
_FLOATS = "vectors are 32-bit floats"
_SCORES = "scores are always from 0 to 1"
_PADDED = "the engine pads the texts of a batch itself"
_TEXTS_ONLY = "its models of this kind read text only"

_WITH_VECTORS: Refusals = {
    "messages": Refused("this endpoint reads `input`; send the texts of the messages in it"),
    "add_special_tokens": Refused(_TOKENS, (True,)),
    "normalize": Refused(_SCALED),
    "use_activation": Refused(_SCALED),
    "padding": Refused(_PADDED, ("do_not_pad",)),
    "mm_processor_kwargs": Refused(_TEXTS_ONLY, ({},)),
    "embed_dtype": Refused(_FLOATS, ("float32",)),
    "endianness": Refused(f"{_FLOATS} in little-endian order", ("native", "little")),
    "output_dtype": Refused(_FLOATS, ("float",)),
    "output_dimension": Refused("`dimensions` is the number of numbers of a vector"),
    "embedding_type": Refused(
        "its vectors are `float` or `base64`, as `encoding_format` asks", ("float",)
    ),
    "task": Refused("`input_type` and `prompt_name` choose the text before an input"),
    "late_chunking": Refused("each text of `input` is a text of its own", (False,)),
}

_WITH_SCORES: Refusals = {
    "add_special_tokens": Refused(_PAIR_TOKENS, (True,)),
    "use_activation": Refused(_SCORES, (True,)),
    "padding": Refused(_PADDED, ("do_not_pad",)),
    "mm_processor_kwargs": Refused(_TEXTS_ONLY, ({},)),
    "instruction": Refused("send it as the beginning of the query"),
}

_WITH_RANKS: Refusals = {
    **_WITH_SCORES,
    "rank_fields": Refused("a document is ranked by its `text`", (["text"],)),
    "top_k": Refused("`top_n` is the number of documents in the answer"),
    "raw_scores": Refused(_SCORES, (False,)),
}

REFUSED: Mapping[Endpoint, Refusals] = {
    Endpoint.CHAT: {**_EVERYWHERE, **_IN_CONVERSATIONS},
    Endpoint.COMPLETIONS: _EVERYWHERE,
    Endpoint.RESPONSES: {**_EVERYWHERE, **_IN_CONVERSATIONS, **_IN_RESPONSES},
    Endpoint.MESSAGES: {**_EVERYWHERE, **_IN_CONVERSATIONS, **_IN_MESSAGES},
    Endpoint.EMBEDDINGS: _WITH_VECTORS,
    Endpoint.RERANK: _WITH_RANKS,
    Endpoint.SCORE: _WITH_SCORES,
}
