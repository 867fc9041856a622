"""The paths of both URL trees: what may be sent where, and what comes back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from pydantic import BaseModel

from serving.core.request import DIALECTS
from serving.protocols.chat import ChatBody
from serving.protocols.completions import CompletionsBody
from serving.protocols.openapi import answers
from serving.protocols.openapi.schema import PREFIX
from serving.protocols.responses.body import ResponsesBody
from serving.protocols.tokens import DetokenizeBody, TokenizeBody

Members = dict[str, Any]

_BODY_ERRORS: Final = ("400", "401", "404", "405", "413", "415", "500", "503")
_LOOK_ERRORS: Final = ("401", "405")
_INFO_ERRORS: Final = ("400", "401", "404", "405", "503")


def all_paths() -> Members:
    """Of both trees, and what is beside them."""
    trees: Members = {}
    for tree in DIALECTS:
        trees |= _generation(tree) | _models(tree) | _tokenizers(tree)
    return {**trees, **_tokenizers(""), **_documents()}


def _generation(tree: str) -> Members:
    chat = _body(ChatBody, "messages", "prompt_token_ids")
    completions = _body(CompletionsBody, "prompt", "prompt_token_ids")
    responses = _body(ResponsesBody, "input")
    chunked = _streamed(answers.ChatCompletion, answers.ChatCompletionChunk)
    texts = _streamed(answers.Completion, answers.Completion)
    events = _streamed(answers.Response, answers.ResponseEvent)
    return {
        f"/{tree}/chat/completions": _post(
            tree, "createChatCompletion", "Answer a conversation", chat, chunked
        ),
        f"/{tree}/completions": _post(
            tree, "createCompletion", "Go on with texts", completions, texts
        ),
        f"/{tree}/responses": _post(tree, "createResponse", "Answer items", responses, events),
        f"/{tree}/responses/input_tokens": _post(
            tree,
            "countInputTokens",
            "Count the tokens of a response's prompt",
            _body(ResponsesBody, "input", "instructions"),
            _json("The count.", answers.InputTokens),
        ),
    }


def _models(tree: str) -> Members:
    first = _link(tree, "retrieveModel", id="$response.body#/data/0/id")
    models = _json("All served models.", answers.ModelList) | {"links": {"first": first}}
    model = _json("The model.", answers.Model)
    name = {
        "name": "id",
        "in": "path",
        "required": True,
        "schema": {"type": "string", "minLength": 1},
        "description": "May contain slashes, percent-encoded.",
    }
    errors = (*_LOOK_ERRORS, "404")
    return {
        f"/{tree}/models": _get(tree, "listModels", "List the served models", models),
        f"/{tree}/models/{{id}}": {
            **_get(tree, "retrieveModel", "Look at one model", model, errors),
            "parameters": [name],
        },
    }


def _tokenizers(tree: str) -> Members:
    """vLLM has these at the root, OVMS under `/v1`."""
    place = f"/{tree}" if tree else ""
    back = _link(tree, "detokenize") | {"requestBody": {"tokens": "$response.body#/tokens"}}
    forth = _link(tree, "tokenize") | {"requestBody": {"prompt": "$response.body#/prompt"}}
    tokens = _json("Their tokens.", answers.Tokenized) | {"links": {"back": back}}
    text = _json("Their text.", answers.Detokenized) | {"links": {"forth": forth}}
    sources = _body(TokenizeBody, "prompt", "messages", "text")
    info = _json("The tokenizer.", answers.TokenizerInfo)
    model = {
        "name": "model",
        "in": "query",
        "schema": {"type": "string"},
        "description": "May be left out where one model is loaded.",
    }
    return {
        f"{place}/tokenize": _post(
            tree, "tokenize", "Tell the tokens of texts, or of a conversation", sources, tokens
        ),
        f"{place}/detokenize": _post(
            tree, "detokenize", "Tell the text of tokens", _body(DetokenizeBody), text
        ),
        f"{place}/tokenizer_info": {
            **_get(tree, "tokenizerInfo", "Describe the tokenizer", info, _INFO_ERRORS),
            "parameters": [model],
        },
    }


def _documents() -> Members:
    """What the server says of itself, to everyone."""
    itself = {
        "description": "This document.",
        "content": {"application/json": {"schema": {"type": "object"}}},
    }
    version = _json("The version.", answers.Version)
    paths = {
        "/version": _get("", "version", "Tell the server's version", version, ("405",)),
        "/openapi.json": _get("", "openapi", "Describe this API", itself, ("405",)),
    }
    for path in paths.values():
        path["get"]["security"] = []
    return paths


def _streamed(whole: type[BaseModel], event: type[BaseModel]) -> Members:
    answer = _json("The answer: whole, or as events when `stream` is true.", whole)
    told = {"anyOf": [{"$ref": PREFIX + each.__name__} for each in (event, answers.Error)]}
    data = {"type": "string", "contentMediaType": "application/json", "contentSchema": told}
    # The schema of one event: until 3.2, OpenAPI has no word for it, and tools read it so.
    answer["content"]["text/event-stream"] = {
        "schema": {
            "type": "object",
            "description": "A server-sent event. The last one says `[DONE]`.",
            "properties": {
                "event": {"type": "string"},
                "data": {"anyOf": [data, {"const": "[DONE]"}]},
            },
            "required": ["data"],
        }
    }
    return answer


def _body(model: type[BaseModel], *sources: str) -> Members:
    """The schema of a body in which one of these fields says what is to be answered."""
    reference = {"$ref": PREFIX + model.__name__}
    if not sources:
        return reference
    nothing: Members = {"not": {"enum": [None, []]}}
    return {
        "allOf": [reference],
        "anyOf": [{"required": [name], "properties": {name: nothing}} for name in sources],
    }


def _post(tree: str, name: str, summary: str, body: Members, answer: Members) -> Members:
    content = {"application/json": {"schema": body}}
    operation = _operation(tree, name, summary, answer, _BODY_ERRORS)
    return {"post": {**operation, "requestBody": {"required": True, "content": content}}}


def _get(
    tree: str, name: str, summary: str, answer: Members, errors: Iterable[str] = _LOOK_ERRORS
) -> Members:
    return {"get": _operation(tree, name, summary, answer, errors)}


def _operation(
    tree: str, name: str, summary: str, answer: Members, errors: Iterable[str]
) -> Members:
    header = {"$ref": "#/components/headers/x-request-id"}
    return {
        "operationId": _id(tree, name),
        "summary": summary,
        "tags": [tree or "server"],
        "responses": {
            "200": {**answer, "headers": {"x-request-id": header}},
            **{status: {"$ref": f"#/components/responses/Error{status}"} for status in errors},
        },
    }


def _id(tree: str, name: str) -> str:
    return f"{tree}_{name}" if tree else name


def _link(tree: str, name: str, **parameters: str) -> Members:
    return {"operationId": _id(tree, name), "parameters": parameters}


def _json(description: str, model: type[BaseModel]) -> Members:
    content = {"application/json": {"schema": {"$ref": PREFIX + model.__name__}}}
    return {"description": description, "content": content}
