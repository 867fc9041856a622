"""The errors that need a running server or its model.

The tests send these requests to a server with the model tiny-chat, which has a context of 2048
tokens and a vocabulary of 3072.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from docs.mistakes import INVALID, UNSUPPORTED

MODEL: Final = "tiny-chat"
MESSAGES: Final = [{"role": "user", "content": "Hi"}]
GRAMMAR: Final = "invalid_grammar"
TOO_LONG: Final = "context_length_exceeded"


@dataclass(frozen=True, slots=True)
class Failure:
    """A request and its error. `{tree}` in a path or a message is v1 or v3."""

    mistake: str
    path: str
    status: int
    code: str
    param: str | None
    message: str
    method: str = "POST"
    body: Mapping[str, Any] | bytes | Callable[[], bytes] | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    has_key: bool = True


def _http(mistake: str, status: int, code: str, message: str, /, path: str, **more: Any) -> Failure:
    return Failure(mistake, path, status, code, None, message, **more)


def _unreadable(mistake: str, body: bytes, reason: str) -> Failure:
    message = f"The request body cannot be read: {reason}."
    headers = {"content-type": "application/json"}
    path = "/{tree}/completions"
    return Failure(mistake, path, 400, "invalid_json", None, message, body=body, headers=headers)


_PICTURE: Final = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}


def _chat(fields: Mapping[str, Any], code: str, param: str, message: str) -> Failure:
    body = {"messages": MESSAGES, "max_tokens": 2, **fields}
    return _wrong("/{tree}/chat/completions", body, fields, code, param, message)


def _completion(fields: Mapping[str, Any], code: str, param: str, message: str) -> Failure:
    return _wrong("/{tree}/completions", {"prompt": "a", **fields}, fields, code, param, message)


def _response(fields: Mapping[str, Any], code: str, param: str, message: str) -> Failure:
    return _wrong("/{tree}/responses", {"input": "Hi", **fields}, fields, code, param, message)


def _tokens(path: str, fields: Mapping[str, Any], code: str, param: str, message: str) -> Failure:
    return _wrong(path, fields, fields, code, param, message)


def _wrong(
    path: str,
    body: Mapping[str, Any],
    fields: Mapping[str, Any],
    code: str,
    param: str,
    message: str,
) -> Failure:
    mistake = ", ".join(f"{name}: {value!r}" for name, value in fields.items())
    return Failure(mistake, path, 400, code, param, message, body={"model": MODEL, **body})


def _too_long(num_prompt: int, num_output: int, param: str) -> str:
    return (
        "This model's maximum context length is 2048 tokens. However, you requested "
        f"{num_prompt + num_output} tokens ({num_prompt} in the {param}, {num_output} in the "
        f"completion). Please reduce the length of the {param} or completion."
    )


def _no_token(param: str) -> str:
    return (
        f"`{param}` names the token 9999, which this model does not have: its ids go from 0 to "
        "3071."
    )


_NO_KEY: Final = "No API key was given. Send one in the header 'Authorization: Bearer <key>'."
_NOT_A_KEY: Final = (
    "This is not an API key of this server. Copy the whole key, which begins with 'vny_', and "
    "send it as 'Authorization: Bearer <key>'."
)
_DEEP: Final = b'{"a":' * 101 + b"1" + b"}" * 101
_NO_ROUTE: Final = (
    "Not found: POST /{tree}/nothing. This server has POST /{tree}/chat/completions, "
    "/{tree}/completions, /{tree}/responses, /{tree}/messages, /{tree}/embeddings, "
    "/{tree}/rerank, /{tree}/score, /{tree}/tokenize, /{tree}/detokenize, and GET "
    "/{tree}/models, /{tree}/tokenizer_info and /{tree}/usage/me."
)
_NO_TREE: Final = (
    "Not found: /nothing. The OpenAI-compatible API is under /v1 and /v3: set your "
    "client's base_url to end in /v1. /docs/ describes it."
)
_BEAMS: Final = (
    "cannot go with beam search, which does not sample and does not let the server change its "
    "candidates. Leave it out, or leave out `use_beam_search` and, under /v3, `best_of`."
)
_CHAT: Final = "/{tree}/chat/completions"

# Errors that do not depend on the members of a body.
BEFORE_THE_BODY: Sequence[Failure] = (
    _http("no key", 401, "invalid_api_key", _NO_KEY, path=_CHAT, body={}, has_key=False),
    _http(
        "a key of another server",
        401,
        "invalid_api_key",
        _NOT_A_KEY,
        path="/{tree}/models",
        method="GET",
        headers={"authorization": "Bearer EMPTY"},
        has_key=False,
    ),
    _http("a wrong path", 404, "not_found", _NO_ROUTE, path="/{tree}/nothing", body={}),
    _http("no tree in the path", 404, "not_found", _NO_TREE, path="/nothing", method="GET"),
    _http(
        "a wrong method", 405, "method_not_allowed", "Use POST here, not GET.",
        path=_CHAT, method="GET",
    ),
    _http(
        "a wrong method", 405, "method_not_allowed", "Use GET here, not POST.",
        path="/{tree}/models", body={},
    ),
    _http(
        "a body that is not JSON",
        415,
        "unsupported_media_type",
        "The request body must be JSON. Send it with `Content-Type: application/json`.",
        path="/{tree}/completions",
        body=b"a=1",
        headers={"content-type": "application/x-www-form-urlencoded"},
    ),
    _http(
        "a body of more than VINERY_MAX_BODY_MB",
        413,
        "request_too_large",
        "The request body is larger than 64 MB.",
        path="/{tree}/completions",
        body=lambda: bytes(64 * 2**20 + 1),
        headers={"content-type": "application/json"},
    ),
    _http(
        "a response that is asked for again",
        404,
        "not_found",
        "Response with id 'resp_1' not found.",
        path="/{tree}/responses/resp_1",
        method="GET",
    ),
    _unreadable("no body", b"", "it is empty"),
    _unreadable(
        "broken JSON",
        b"{",
        "it is not valid JSON (Expecting property name enclosed in double quotes: line 1 column "
        "2 (char 1))",
    ),
    _unreadable("an array", b"[]", "it must be a JSON object"),
    _unreadable("null", b"null", "it must be a JSON object"),
    _unreadable("bytes that are no UTF-8", b"\xff", "it is not valid UTF-8"),
    _unreadable("101 levels", _DEEP, "it nests more than 100 levels"),
    _unreadable("NaN", b'{"a":NaN}', "NaN is not a JSON number"),
    _unreadable("1e999", b'{"a":1e999}', "a number is too large"),
    _unreadable("a key twice", b'{"a":1,"a":2}', "an object has the same key twice"),
    _unreadable(
        "half a surrogate pair", b'{"a":"\\ud800"}', "a string holds half of a surrogate pair"
    ),
)  # fmt: skip

# Errors that depend on the model.
WITH_THE_MODEL: Sequence[Failure] = (
    Failure(
        "model: 'x'", _CHAT, 404, "model_not_found", "model",
        "The model `x` does not exist. GET /v1/models lists the models that can answer now.",
        body={"model": "x", "messages": MESSAGES},
    ),
    Failure(
        "an unknown name", "/{tree}/models/x", 404, "model_not_found", "model",
        "The model `x` does not exist.", method="GET",
    ),
    Failure(
        "model=x", "/{tree}/tokenizer_info?model=x", 404, "model_not_found", "model",
        "The model `x` does not exist. GET /v1/models lists the models that can answer now.",
        method="GET",
    ),
    _chat({"messages": [5] * 3000}, TOO_LONG, "messages", _too_long(3000, 2, "messages")),
    _completion({"prompt": [5] * 3000}, TOO_LONG, "prompt", _too_long(3000, 0, "prompt")),
    _completion(
        {"prompt": [5] * 2000, "max_tokens": 100},
        TOO_LONG,
        "prompt",
        _too_long(2000, 100, "prompt"),
    ),
    _response({"input": "Hi " * 3000}, TOO_LONG, "input", _too_long(3013, 0, "input")),
    _chat(
        {"messages": [{"role": "user", "content": [_PICTURE]}]},
        INVALID,
        "messages[0].content[0].image_url",
        "`messages[0].content[0].image_url` holds image input, but the model tiny-chat takes text "
        "only. Send text parts, or choose a model with vision.",
    ),
    _completion({"prompt": ""}, INVALID, "prompt", "The prompt is empty: send at least one token."),
    _completion(
        {"prompt": [9999]},
        INVALID,
        "prompt",
        _no_token("prompt"),
    ),
    _chat(
        {"prompt_token_ids": [9999]},
        INVALID,
        "prompt_token_ids",
        _no_token("prompt_token_ids"),
    ),
    _chat(
        {"stop_token_ids": [9999]},
        INVALID,
        "stop_token_ids",
        _no_token("stop_token_ids"),
    ),
    _chat({"logit_bias": {"9999": 1}}, INVALID, "logit_bias", _no_token("logit_bias")),
    _chat(
        {"allowed_token_ids": [9999]}, INVALID, "allowed_token_ids", _no_token("allowed_token_ids")
    ),
    _chat(
        {"bad_words_token_ids": [9999]},
        INVALID,
        "bad_words_token_ids",
        _no_token("bad_words_token_ids"),
    ),
    _chat(
        {"logprobs": True, "logprob_token_ids": [9999]},
        INVALID,
        "logprob_token_ids",
        _no_token("logprob_token_ids"),
    ),
    _chat(
        {"guided_regex": "("},
        GRAMMAR,
        "guided_regex",
        "`guided_regex` cannot be compiled as a regular expression: a parenthesis is not closed, "
        "at character 1.",
    ),
    _chat(
        {"guided_grammar": "x"},
        GRAMMAR,
        "guided_grammar",
        "The grammar cannot be compiled: EBNF parser error at line 1, column 1: The root rule "
        'with name "root" is not found',
    ),
    _chat(
        {"response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "x"}}}},
        GRAMMAR,
        "response_format.json_schema.schema.type",
        "`response_format.json_schema.schema.type` must be one of object, array, string, number, "
        "integer, boolean, null, or an array of these.",
    ),
    _response(
        {"text": {"format": {"type": "json_schema", "name": "n", "schema": {"type": "x"}}}},
        GRAMMAR,
        "text.format.schema.type",
        "`text.format.schema.type` must be one of object, array, string, number, integer, "
        "boolean, null, or an array of these.",
    ),
    _chat(
        {"structural_tag": {}},
        GRAMMAR,
        "structural_tag",
        "`structural_tag` needs `format`, or `structures` and `triggers`.",
    ),
    _chat(
        {"continue_final_message": True, "messages": [
            {"role": "tool", "tool_call_id": "a", "content": "4"}]},
        INVALID,
        "continue_final_message",
        "Only a text of the assistant or the user can be continued, but the last message is not "
        "one.",
    ),
    _chat(
        {"documents": [{"text": "a"}]},
        UNSUPPORTED,
        "documents",
        "The chat template of this model takes no documents. Write them into a message.",
    ),
    _chat(
        {"chat_template": "{{ messages }}"},
        UNSUPPORTED,
        "chat_template",
        "This model takes no `chat_template` from requests. Leave it out, or ask the "
        "administrator to set the model's option trust_request_chat_template.",
    ),
    _completion(
        {"suffix": "b"},
        UNSUPPORTED,
        "suffix",
        "This model has no tokens for filling in the middle, so it cannot take a `suffix`. Leave "
        "it out, or choose a model for code that has such tokens.",
    ),
    _chat(
        {"logits_processors_args": {"a": 1}},
        UNSUPPORTED,
        "logits_processors_args",
        "This model has no logits processors. Leave the arguments out, or ask its administrator "
        "to set the option logits_processors.",
    ),
    _chat(
        {"vllm_xargs": {"a": 1}},
        UNSUPPORTED,
        "vllm_xargs",
        "This model has no logits processors. Leave the arguments out, or ask its administrator "
        "to set the option logits_processors.",
    ),
    _chat(
        {"num_assistant_tokens": 5},
        UNSUPPORTED,
        "num_assistant_tokens",
        "`num_assistant_tokens` is for models that are served with the option draft_model, "
        "eagle3_head or prompt_lookup, which this one is not. Leave it out.",
    ),
    _chat(
        {"max_ngram_size": 3},
        UNSUPPORTED,
        "max_ngram_size",
        "`max_ngram_size` is for models that are served with the option prompt_lookup, which "
        "this one is not. Leave it out.",
    ),
    _chat({"use_beam_search": True, "top_k": 5}, INVALID, "top_k", f"`top_k` {_BEAMS}"),
    _chat(
        {"use_beam_search": True, "guided_regex": "a"},
        INVALID,
        "guided_regex",
        f"`guided_regex` {_BEAMS}",
    ),
    _tokens(
        "/{tree}/tokenize",
        {},
        "missing_required_parameter",
        "prompt",
        "`prompt` is required: or send `messages` or `text`.",
    ),
    _tokens(
        "/{tree}/tokenize",
        {"prompt": "a", "text": "b"},
        INVALID,
        "text",
        "`text` cannot go with `prompt`: send one of them.",
    ),
    _tokens(
        "/{tree}/tokenize",
        {"text": []},
        INVALID,
        "text",
        "`text` must not be empty.",
    ),
    _tokens(
        "/{tree}/tokenize",
        {"text": "a", "pad_to_max_length": True},
        "missing_required_parameter",
        "max_length",
        "`max_length` is required with `pad_to_max_length`.",
    ),
    _tokens(
        "/{tree}/detokenize",
        {"tokens": [9999]},
        INVALID,
        "tokens",
        _no_token("tokens"),
    ),
    _tokens(
        "/{tree}/responses/input_tokens",
        {},
        "missing_required_parameter",
        "input",
        "`input` is required.",
    ),
)  # fmt: skip


def _vectors(fields: Mapping[str, Any], code: str, param: str, message: str) -> Failure:
    return _of("tiny-embed", "/{tree}/embeddings", {"input": "a", **fields}, code, param, message)


def _ranks(fields: Mapping[str, Any], code: str, param: str, message: str) -> Failure:
    body = {"query": "a", "documents": ["b"], **fields}
    return _of("tiny-rerank", "/{tree}/rerank", body, code, param, message)


def _of(
    model: str, path: str, body: Mapping[str, Any], code: str, param: str, message: str
) -> Failure:
    return _wrong(path, {**body, "model": model}, {"model": model, **body}, code, param, message)


_MANY_WORDS: Final = "a " * 600
_OTHERS: Final = "GET /v1/models lists the others, with their tasks."
_NOT_CHATS: Final = f"The model tiny-chat chats: use /chat/completions. {_OTHERS}"
_CUT: Final = (
    "and this model takes 512. Send a shorter text, divide it, or let it be cut with "
    "`truncate_prompt_tokens: -1`"
)

# Errors of the models tiny-embed and tiny-rerank.
WITH_OTHER_TASKS: Sequence[Failure] = (
    _of(
        "tiny-embed", _CHAT, {"messages": MESSAGES}, INVALID, "model",
        f"The model tiny-embed makes embeddings: use /embeddings. {_OTHERS}",
    ),
    _of("tiny-chat", "/{tree}/embeddings", {"input": "Hi"}, INVALID, "model", _NOT_CHATS),
    _of(
        "tiny-chat", "/{tree}/rerank", {"query": "a", "documents": ["b"]}, INVALID, "model",
        _NOT_CHATS,
    ),
    _vectors({"input": ""}, INVALID, "input", "`input` must not have an empty text."),
    _vectors({"input": _MANY_WORDS}, TOO_LONG, "input", f"`input` has 602 tokens, {_CUT}."),
    _vectors(
        {"input": ["a", _MANY_WORDS]}, TOO_LONG, "input[1]", f"`input[1]` has 602 tokens, {_CUT}."
    ),
    _vectors(
        {"input": [9999]}, INVALID, "input",
        "`input` names the token 9999, which this model does not have: its ids go from 0 to 2047.",
    ),
    _vectors(
        {"dimensions": 97}, INVALID, "dimensions",
        "`dimensions` must be at most 96, which is how many numbers the vectors of this model "
        "have.",
    ),
    _vectors(
        {"prompt_name": "x"}, UNSUPPORTED, "prompt_name",
        "`prompt_name` is `x`, but of such texts this model has none.",
    ),
    _vectors(
        {"truncate_prompt_tokens": 513}, INVALID, "truncate_prompt_tokens",
        "`truncate_prompt_tokens` must be at most 512, which this model takes.",
    ),
    _vectors(
        {"truncate_prompt_tokens": 2}, INVALID, "truncate_prompt_tokens",
        "`truncate_prompt_tokens` must be at least 3: this model has 2 tokens around each text.",
    ),
    _ranks(
        {"documents": ["b", _MANY_WORDS]}, TOO_LONG, "documents[1]",
        f"`documents[1]` has 604 tokens with those of its query, {_CUT} or a smaller "
        "`max_tokens_per_doc`.",
    ),
    _ranks(
        {"query": _MANY_WORDS, "truncate": "END"}, INVALID, "query",
        "`query` has 603 tokens with those around it, which leave none of 512 for the document. "
        "Send a shorter query.",
    ),
)  # fmt: skip
