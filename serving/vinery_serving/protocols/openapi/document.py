"""The OpenAPI 3.1 document of the inference API, from the types that parse requests."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from pydantic import BaseModel

from vinery_serving.core import field_limits
from vinery_serving.core.dialects import DIALECTS
from vinery_serving.core.tasks import GENERATION_ENDPOINTS, Endpoint
from vinery_serving.protocols.chat.body import ChatBody
from vinery_serving.protocols.chat.exchange import ChatCompletion, ChatCompletionChunk
from vinery_serving.protocols.common.encoding import Answer, Error
from vinery_serving.protocols.common.parameters import MODEL
from vinery_serving.protocols.completions.body import CompletionsBody
from vinery_serving.protocols.completions.exchange import Completion
from vinery_serving.protocols.messages.answer import MessageAnswer, MessageEvent, MessageTokens
from vinery_serving.protocols.messages.body import CountBody, MessagesBody
from vinery_serving.protocols.messages.errors import MessageError
from vinery_serving.protocols.models import Model, ModelList, TokenizerInfo, Version
from vinery_serving.protocols.openapi.schema import (
    PREFIX,
    Schema,
    add_foreign,
    add_refused,
    component_schemas,
)
from vinery_serving.protocols.pooling.embeddings import Embeddings, EmbeddingsBody
from vinery_serving.protocols.pooling.rerank import Rerank, RerankBody, ScoreBody, Scores
from vinery_serving.protocols.responses.body import ResponsesBody
from vinery_serving.protocols.responses.objects import InputTokens, Response, ResponseEvent
from vinery_serving.protocols.tokens import (
    CountedTokens,
    DetokenizeBody,
    Detokenized,
    TokenizeBody,
    Tokens,
)

Document = dict[str, Any]

BODIES: Final[Mapping[Endpoint, type[BaseModel]]] = {
    Endpoint.CHAT: ChatBody,
    Endpoint.COMPLETIONS: CompletionsBody,
    Endpoint.RESPONSES: ResponsesBody,
    Endpoint.MESSAGES: MessagesBody,
    Endpoint.EMBEDDINGS: EmbeddingsBody,
    Endpoint.RERANK: RerankBody,
    Endpoint.SCORE: ScoreBody,
}

_DESCRIPTION: Final = """\
Vinery serves OpenVINO models to OpenAI's and Anthropic's clients, under two URL trees: `/v1` \
has OpenAI's defaults, `/v3` those of OpenVINO Model Server. The description of a field states \
where they differ. Every field may be null, which is the same as absent. Unknown fields are \
ignored, and the header `x-vinery-ignored` names them, unless an administrator lets the server \
refuse them. The server refuses the fields that it does not implement (`x-refused`). `x-foreign` \
has the parameters of other servers, and what becomes of them. What is no right HTTP, or \
comes too slowly or from too many connections, may get 400, 408, 413, 429 or 431 before its path \
is read, and its connection is closed.

Limits: a body of {max_body_mb} MB with {levels} levels of JSON, {containers} objects and \
arrays, {members} members of objects and {values} JSON values; {choices} answers to one prompt \
and {answers} to one request; {text} characters in all texts of a prompt, and {tools} in all \
tools. The fields have their own limits, and `x-setting` names the setting that replaces one. A \
model has further limits: its context, and those that its administrator sets.

Errors and lists of models have OpenAI's form. For requests with the header `anthropic-version` \
they have Anthropic's, and errors of `/messages` always do.

The key is a bearer token, or the value of the header `api-key` or `x-api-key`. The paths of \
Azure's clients work too: `/openai/v1/...`, and `/openai/deployments/MODEL/chat/completions`, \
whose model replaces that of the body.

This document needs no key."""

_ERRORS: Final[Mapping[str, str]] = {
    "400": "The request must be changed. `param` names the field.",
    "401": "The key is missing, malformed, unknown, revoked or expired.",
    "403": "The key may not do this: by its scopes, endpoints, models or networks.",
    "404": "The model does not exist.",
    "405": "The URL does not accept this method.",
    "413": "The body is too large.",
    "415": "The body is not JSON.",
    "429": "A limit is reached, or too many requests of the key are being read. `Retry-After` is "
    "absent if waiting does not help.",
    "500": "The engine failed while it ran the request.",
    "503": "Try again later: the model is starting, or all its slots are in use.",
}
_HEADERS: Final[Mapping[str, str]] = {
    "x-request-id": "The id of the request in the server's log.",
    "Retry-After": "Seconds to wait before the next try.",
    "Allow": "The accepted methods.",
    "WWW-Authenticate": "How to send the key: `Authorization: Bearer KEY`.",
}
_HEADERS_OF_BODIES: Final[Mapping[str, str]] = {
    "x-vinery-ignored": "The fields of the body that took no effect, if there are any.",
    "x-vinery-clamped": "The limit of output tokens, if it is less than the body asks for.",
}
_HEADERS_OF_ERRORS: Final[Mapping[str, tuple[str, ...]]] = {
    "401": ("WWW-Authenticate",),
    "405": ("Allow",),
    "503": ("Retry-After",),
}


Form = type[Answer]
# The forms of errors.
_OPENAI: Final = Error
_ANTHROPIC: Final = MessageError


def document(*, version: str, max_body_mb: int) -> Document:
    """Return the whole document, as JSON values."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Vinery",
            "version": version,
            "description": _description(max_body_mb),
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "security": [{"key": []}],
        "paths": _paths(),
        "components": {
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
            "headers": {
                name: {
                    "description": text,
                    "required": name in _HEADERS,
                    "schema": {"type": "string"},
                }
                for name, text in {**_HEADERS, **_HEADERS_OF_BODIES}.items()
            },
            "responses": {
                f"{form.__name__}{status}": {
                    **_json(why, form),
                    "headers": _headers("x-request-id", *_HEADERS_OF_ERRORS.get(status, ())),
                }
                for form in (_OPENAI, _ANTHROPIC)
                for status, why in _ERRORS.items()
            },
            "schemas": _schemas(),
        },
    }


def _description(max_body_mb: int) -> str:
    return _DESCRIPTION.format(
        max_body_mb=max_body_mb,
        levels=field_limits.JSON_LEVELS.value,
        containers=field_limits.JSON_CONTAINERS.value,
        members=field_limits.JSON_MEMBERS.value,
        values=field_limits.JSON_VALUES.value,
        choices=field_limits.CHOICES.value,
        answers=field_limits.ANSWERS.value,
        text=field_limits.TEXT.value,
        tools=field_limits.TOOLS_CHARS.value,
    )


def _schemas() -> Mapping[str, Schema]:
    models: list[type[BaseModel] | Form] = [*BODIES.values(), *_answers(Answer)]
    models += [CountBody, TokenizeBody, DetokenizeBody]
    schemas = component_schemas(models)
    bodies = [*BODIES.items()]
    bodies.append((Endpoint.MESSAGES, CountBody))
    for endpoint, body in bodies:
        schema = schemas[body.__name__]
        add_refused(schema, endpoint)
        if endpoint in GENERATION_ENDPOINTS:
            add_foreign(schema)
    return _reachable(schemas, [model.__name__ for model in models])


def _reachable(schemas: Mapping[str, Schema], names: list[str]) -> Mapping[str, Schema]:
    """Return the schemas `names` and all that they refer to, by name. Others only refuse values."""
    found: dict[str, Schema] = {}
    while names:
        name = names.pop()
        if name not in found:
            found[name] = schemas[name]
            names += re.findall(rf'"{PREFIX}(\w+)"', json.dumps(schemas[name]))
    return dict(sorted(found.items()))


def _answers(kind: Form) -> Iterator[Form]:
    """Yield the types of all answers, and of what is in them."""
    for each in kind.__subclasses__():
        yield each
        yield from _answers(each)


_READ_ERRORS: Final = ("401", "403", "405", "429", "503")
_INFO_ERRORS: Final = ("400", "404", *_READ_ERRORS)
_LIST_ERRORS: Final = ("400", *_READ_ERRORS)
_BODY_ERRORS: Final = (*_INFO_ERRORS, "413", "415", "500")


def _paths() -> Document:
    trees: Document = {}
    for tree in DIALECTS:
        trees |= _generation(tree) | _messages(tree) | _models(tree) | _tokenizers(tree)
        trees |= _pooling(tree)
    at_root = {**_ranking("", ""), **_ranking("v2", "v2"), **_tokenizers("")}
    del at_root["/v2/score"]  # only Cohere's clients send `/v2`
    return {**trees, **at_root, **_documents()}


def _generation(tree: str) -> Document:
    chat = _body(ChatBody, "messages", "prompt_token_ids")
    completions = _body(CompletionsBody, "prompt", "prompt_token_ids")
    chunks = _streamed(ChatCompletion, ChatCompletionChunk)
    texts = _streamed(Completion, Completion)
    events = _streamed(Response, ResponseEvent)
    return {
        f"/{tree}/chat/completions": _post(
            tree, "createChatCompletion", "Answer a conversation", chat, chunks
        ),
        f"/{tree}/completions": _post(
            tree, "createCompletion", "Complete texts", completions, texts
        ),
        f"/{tree}/responses": _post(
            tree, "createResponse", "Answer items", _body(ResponsesBody, "input"), events
        ),
        f"/{tree}/responses/input_tokens": _post(
            tree,
            "countInputTokens",
            "Count the tokens of a response's prompt",
            _body(ResponsesBody, "input", "instructions"),
            _json("The count.", InputTokens),
        ),
    }


def _pooling(tree: str) -> Document:
    embeddings = _body(EmbeddingsBody)
    vectors = _json("The vectors.", Embeddings)
    return {
        f"/{tree}/embeddings": _post(
            tree, "createEmbeddings", "Turn texts into vectors", embeddings, vectors
        ),
        **_ranking(tree, tree),
    }


def _ranking(tree: str, prefix: str) -> Document:
    """Jina's and vLLM's clients send these paths without a tree."""
    root = f"/{prefix}" if prefix else ""
    ranked, scores = _json("The documents.", Rerank), _json("The scores.", Scores)
    return {
        f"{root}/rerank": _post(
            tree, "rerank", "Order documents by relevance", _body(RerankBody), ranked
        ),
        f"{root}/score": _post(tree, "score", "Score pairs of texts", _body(ScoreBody), scores),
    }


def _messages(tree: str) -> Document:
    """Anthropic's protocol."""
    return {
        f"/{tree}/messages": _post(
            tree,
            "createMessage",
            "Answer a conversation, for Anthropic's clients",
            _body(MessagesBody),
            _streamed(MessageAnswer, MessageEvent, form=_ANTHROPIC),
            _ANTHROPIC,
        ),
        f"/{tree}/messages/count_tokens": _post(
            tree,
            "countMessageTokens",
            "Count the tokens of a message's prompt",
            _body(CountBody),
            _json("The count.", MessageTokens),
            _ANTHROPIC,
        ),
    }


def _models(tree: str) -> Document:
    first = _link(tree, "retrieveModel", id="$response.body#/data/0/id")
    models = _json("The models.", ModelList) | {"links": {"first": first}}
    model = _json("The model.", Model)
    name = {
        "name": "id",
        "in": "path",
        "required": True,
        "schema": {"type": "string", "minLength": 1},
        "description": "May contain slashes, percent-encoded.",
    }
    everything = {
        "name": "all",
        "in": "query",
        "schema": {"type": "boolean"},
        "description": "Whether models that cannot answer now are listed too.",
    }
    errors = (*_READ_ERRORS, "404")
    return {
        f"/{tree}/models": {
            **_get(tree, "listModels", "List the models that can answer now", models, _LIST_ERRORS),
            "parameters": [everything],
        },
        f"/{tree}/models/{{id}}": {
            **_get(tree, "retrieveModel", "Return one model", model, errors),
            "parameters": [name],
        },
    }


def _tokenizers(tree: str) -> Document:
    """vLLM has these paths at the root, OVMS under `/v1`."""
    root = f"/{tree}" if tree else ""
    back = _link(tree, "detokenize") | {"requestBody": {"tokens": "$response.body#/tokens"}}
    forth = _link(tree, "tokenize") | {"requestBody": {"prompt": "$response.body#/prompt"}}
    tokens = _json("Their tokens.", CountedTokens, Tokens) | {"links": {"back": back}}
    text = _json("Their text.", Detokenized) | {"links": {"forth": forth}}
    sources = _body(TokenizeBody, "prompt", "messages", "text")
    info = _json("The tokenizer.", TokenizerInfo)
    model = {
        "name": "model",
        "in": "query",
        "schema": {"type": "string"},
        "description": MODEL,
    }
    return {
        f"{root}/tokenize": _post(
            tree, "tokenize", "Return the tokens of texts, or of a conversation", sources, tokens
        ),
        f"{root}/detokenize": _post(
            tree, "detokenize", "Return the text of tokens", _body(DetokenizeBody), text
        ),
        f"{root}/tokenizer_info": {
            **_get(tree, "tokenizerInfo", "Describe the tokenizer", info, _INFO_ERRORS),
            "parameters": [model],
        },
    }


def _documents() -> Document:
    """The paths without a key."""
    openapi = {
        "description": "This document.",
        "content": {"application/json": {"schema": {"type": "object"}}},
    }
    version = _json("The version.", Version)
    paths = {
        "/version": _get("", "version", "Return the server's version", version, ("405",)),
        "/openapi.json": _get("", "openapi", "Describe this API", openapi, ("405",)),
    }
    for path in paths.values():
        path["get"]["security"] = []
    return paths


def _streamed(whole: Form, event: Form, form: Form = _OPENAI) -> Document:
    answer = _json("The whole answer, or events if `stream` is true.", whole)
    kinds = (event, form) if form is _OPENAI else (event,)
    schema = {"anyOf": [_reference(kind) for kind in kinds]}
    data = {"type": "string", "contentMediaType": "application/json", "contentSchema": schema}
    last = " The data of the last one is `[DONE]`." if form is _OPENAI else ""
    contents = [data, {"const": "[DONE]"}] if form is _OPENAI else [data]
    # The schema of one event. OpenAPI has no keyword for streams before 3.2.
    answer["content"]["text/event-stream"] = {
        "schema": {
            "type": "object",
            "description": f"A server-sent event.{last}",
            "properties": {
                "event": {"type": "string"},
                "data": {"anyOf": contents},
            },
            "required": ["data"],
        }
    }
    return answer


def _body(model: type[BaseModel], *sources: str) -> Document:
    """Return the schema of a body that needs one of the fields `sources`."""
    reference = _reference(model)
    if not sources:
        return reference
    empty: Document = {"not": {"enum": [None, []]}}
    return {
        "allOf": [reference],
        "anyOf": [{"required": [name], "properties": {name: empty}} for name in sources],
    }


def _post(
    tree: str, name: str, summary: str, body: Document, answer: Document, form: Form = _OPENAI
) -> Document:
    """`form` is that of its errors."""
    content = {"application/json": {"schema": body}}
    operation = _operation(tree, name, summary, answer, _BODY_ERRORS, form)
    operation["responses"]["200"]["headers"] |= _headers(*_HEADERS_OF_BODIES)
    return {"post": {**operation, "requestBody": {"required": True, "content": content}}}


def _get(
    tree: str, name: str, summary: str, answer: Document, errors: Iterable[str] = _READ_ERRORS
) -> Document:
    return {"get": _operation(tree, name, summary, answer, errors)}


def _operation(
    tree: str,
    name: str,
    summary: str,
    answer: Document,
    errors: Iterable[str],
    form: Form = _OPENAI,
) -> Document:
    return {
        "operationId": _id(tree, name),
        "summary": summary,
        "tags": [tree or "server"],
        "responses": {
            "200": {**answer, "headers": _headers("x-request-id")},
            **{
                status: {"$ref": f"#/components/responses/{form.__name__}{status}"}
                for status in errors
            },
        },
    }


def _id(tree: str, name: str) -> str:
    return f"{tree}_{name}" if tree else name


def _link(tree: str, name: str, **parameters: str) -> Document:
    return {"operationId": _id(tree, name), "parameters": parameters}


def _json(description: str, *forms: Form) -> Document:
    """Return the response with one of these forms."""
    schemas = [_reference(form) for form in forms]
    schema = {"anyOf": schemas} if len(schemas) > 1 else schemas[0]
    return {"description": description, "content": {"application/json": {"schema": schema}}}


def _reference(model: type[BaseModel | Answer]) -> Document:
    return {"$ref": PREFIX + model.__name__}


def _headers(*names: str) -> Document:
    return {name: {"$ref": f"#/components/headers/{name}"} for name in names}
