"""The OpenAPI 3.1 document of the API, from the types that parse requests and write answers.

The members of a union of bodies differ in role or type. The models leave both to the union's tags,
such as `<role=tool>` and `<nested type=custom>`; members with other tags differ in their fields.
The schemas leave out members that exist only to refuse a value.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

from pydantic import BaseModel, TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from vinery_serving.core import field_limits
from vinery_serving.core.dialects import DIALECTS
from vinery_serving.core.tasks import GENERATION_ENDPOINTS, Endpoint
from vinery_serving.protocols import models, pooling, stored, tokens
from vinery_serving.protocols.chat import ChatBody, ChatCompletion, ChatCompletionChunk
from vinery_serving.protocols.common.encoding import Answer, Error
from vinery_serving.protocols.common.foreign import FOREIGN
from vinery_serving.protocols.common.parameters import MODEL
from vinery_serving.protocols.common.refused import REFUSED
from vinery_serving.protocols.completions import Completion, CompletionsBody
from vinery_serving.protocols.messages.body import CountBody, MessagesBody
from vinery_serving.protocols.messages.exchange import (
    MessageAnswer,
    MessageError,
    MessageEvent,
    MessageTokens,
)
from vinery_serving.protocols.responses.body import INCLUDABLE, ResponsesBody
from vinery_serving.protocols.responses.objects import (
    CompactedResponse,
    InputTokens,
    Response,
    ResponseEvent,
)

Document = dict[str, Any]
Schema = dict[str, Any]
PREFIX: Final = "#/components/schemas/"

BODIES: Final[Mapping[Endpoint, type[BaseModel]]] = {
    Endpoint.CHAT: ChatBody,
    Endpoint.COMPLETIONS: CompletionsBody,
    Endpoint.RESPONSES: ResponsesBody,
    Endpoint.MESSAGES: MessagesBody,
    Endpoint.EMBEDDINGS: pooling.EmbeddingsBody,
    Endpoint.RERANK: pooling.RerankBody,
    Endpoint.SCORE: pooling.ScoreBody,
}

_DESCRIPTION: Final = f"""\
Vinery serves OpenVINO models to OpenAI's and Anthropic's clients, under two URL trees: `/v1` \
has OpenAI's defaults, `/v3` those of OpenVINO Model Server. The description of a field states \
where they differ. Every field may be null, which is the same as absent. Unknown fields are \
ignored, and the header `x-vinery-ignored` names them, unless an administrator lets the server \
refuse them. The server refuses the fields that it does not implement (`x-refused`). `x-foreign` \
has the parameters of other servers, and what becomes of them. A request that is no valid \
HTTP, or comes too slowly or from too many connections, may get 400, 408, 413, 429 or 431 before \
the path is read, and the connection is closed.

Limits: a body of {{max_body_mb}} MB with {field_limits.JSON_LEVELS.value} levels of JSON, \
{field_limits.JSON_CONTAINERS.value} objects and arrays, {field_limits.JSON_MEMBERS.value} members \
of objects and {field_limits.JSON_VALUES.value} JSON values; {field_limits.CHOICES.value} answers \
to one prompt and {field_limits.ANSWERS.value} to one request; {field_limits.TEXT.value} \
characters in all texts of a prompt, and {field_limits.TOOLS_CHARS.value} in all tools. The fields \
have their own limits, and `x-setting` names the setting that replaces a limit. A model has \
further limits: the context, and limits that the administrator sets.

Errors and lists of models have OpenAI's form, or Anthropic's for requests with the header \
`anthropic-version`. Errors of `/messages` always have Anthropic's form.

The key is a bearer token, or the value of the header `api-key` or `x-api-key`. The paths of \
Azure's clients work too: `/openai/v1/...`, and `/openai/deployments/MODEL/chat/completions`, \
whose model replaces that of the body.

This document needs no key."""

_ERRORS: Final[Mapping[str, str]] = {
    "400": "The request must be changed. `param` names the field.",
    "401": "The key is missing, malformed, unknown, revoked or expired.",
    "403": "The key may not do this: by its scopes, endpoints, models or networks.",
    "404": "The model, or the stored object, does not exist.",
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
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Vinery",
            "version": version,
            "description": _DESCRIPTION.format(max_body_mb=max_body_mb),
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


def _schemas() -> Mapping[str, Schema]:
    others = (
        *(CountBody, tokens.TokenizeBody, tokens.DetokenizeBody),
        *(stored.ConversationBody, stored.ConversationItemsBody, stored.StoredMetadataBody),
    )
    forms: list[type[BaseModel] | Form] = [*BODIES.values(), *_answers(Answer), *others]
    schemas = component_schemas(forms)
    bodies: list[tuple[Endpoint, type[BaseModel]]] = [*BODIES.items()]
    bodies.append((Endpoint.MESSAGES, CountBody))
    for endpoint, body in bodies:
        schema = schemas[body.__name__]
        _add_refused(schema, endpoint)
        if endpoint in GENERATION_ENDPOINTS:
            known = schema["properties"]
            schema["x-foreign"] = {
                each.name: ": ".join(each.outcome) for each in FOREIGN if each.name not in known
            }
    return _reachable(schemas, [form.__name__ for form in forms])


def _add_refused(schema: Schema, endpoint: Endpoint) -> None:
    for name, refused in REFUSED[endpoint].items():
        message = refused.message(name)
        schema["properties"][name] = {
            "enum": [None, *refused.harmless],
            "description": f"Refused. {message}",
            "x-refused": message,
        }


def _reachable(schemas: Mapping[str, Schema], names: list[str]) -> Mapping[str, Schema]:
    """Return by name the schemas `names` and all that they refer to. Others only refuse values."""
    found: dict[str, Schema] = {}
    while names:
        name = names.pop()
        if name not in found:
            found[name] = schemas[name]
            names += re.findall(rf'"{PREFIX}(\w+)"', json.dumps(schemas[name]))
    return dict(sorted(found.items()))


def _answers(kind: Form) -> Iterator[Form]:
    for each in kind.__subclasses__():
        yield each
        yield from _answers(each)


# -- Schemas

_NEVER: Final = ("<unknown>", "<other>")  # the tags of members that exist only to refuse a value


class _Generator(GenerateJsonSchema):
    """Leaves out titles and defaults: a title repeats the name, and a default is null."""

    def tagged_union_schema(self, schema: core_schema.TaggedUnionSchema) -> JsonSchemaValue:
        members = [
            self._member(str(tag), choice)
            for tag, choice in schema["choices"].items()
            if tag not in _NEVER
        ]
        return {"anyOf": members}

    def typed_dict_schema(self, schema: core_schema.TypedDictSchema) -> JsonSchemaValue:
        """Later versions may add members to answers."""
        found = super().typed_dict_schema(schema)
        found.pop("additionalProperties", None)
        return found

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def _member(self, tag: str, choice: CoreSchema) -> JsonSchemaValue:
        inner = self.generate_inner(choice)
        mark, is_marked, value = tag.strip("<>").rpartition(" ")[2].partition("=")
        if not is_marked:
            return inner
        return {"allOf": [inner], "properties": {mark: {"const": value}}, "required": [mark]}


def component_schemas(forms: Iterable[type[BaseModel | Answer]]) -> dict[str, Schema]:
    """Return the schemas of `forms` and of the types in them, by name."""
    _, definitions = TypeAdapter.json_schemas(
        [(form, "validation", TypeAdapter(form)) for form in forms],
        ref_template=PREFIX + "{model}",
        schema_generator=_Generator,
    )
    schemas: dict[str, Schema] = definitions["$defs"]
    for schema in schemas.values():
        schema.pop("title", None)
        _join_lines(schema)
    return schemas


def _join_lines(schema: Any) -> None:
    """Descriptions from docstrings have the line breaks of the code."""
    if isinstance(schema, dict):
        if isinstance(schema.get("description"), str):
            schema["description"] = " ".join(schema["description"].split())
        for each in schema.values():
            _join_lines(each)
    elif isinstance(schema, list):
        for each in schema:
            _join_lines(each)


# -- Operations

_READ_ERRORS: Final = ("401", "403", "405", "429", "503")
_INFO_ERRORS: Final = ("400", "404", *_READ_ERRORS)
_BODY_ERRORS: Final = (*_INFO_ERRORS, "413", "415", "500")
# vLLM's and Jina's clients send some paths without a tree; only Cohere's send `/v2`.
_TREES: Final = tuple(DIALECTS)
_AND_AT_ROOT: Final = (*_TREES, "")


@dataclass(frozen=True, slots=True)
class _Operation:
    """A path, with or without a body. `form` is the form of errors."""

    path: str
    name: str
    summary: str
    answer: Document
    body: Document | None = None
    trees: tuple[str, ...] = _TREES
    method: str = ""  # "": GET, or POST with a body
    form: Form = _OPENAI
    errors: tuple[str, ...] = _BODY_ERRORS
    parameters: Sequence[Document] = ()
    # The name of a link, the operation at its end, and the other members of the link.
    link: tuple[str, str, Document] | None = None
    has_key: bool = True

    def under(self, tree: str) -> tuple[str, Document]:
        """Return the path and its item in the URL tree `tree`; "": at the root."""
        headers = () if self.body is None else _HEADERS_OF_BODIES
        answer = {**self.answer, "headers": _headers("x-request-id", *headers)}
        if self.link is not None:
            name, leads_to, given = self.link
            answer["links"] = {name: {"operationId": _id(tree, leads_to), "parameters": {}} | given}
        errors = {
            status: {"$ref": f"#/components/responses/{self.form.__name__}{status}"}
            for status in self.errors
        }
        operation: Document = {
            "operationId": _id(tree, self.name),
            "summary": self.summary,
            "tags": [tree or "server"],
            "responses": {"200": answer, **errors},
            **({} if self.has_key else {"security": []}),
        }
        if self.parameters:
            operation["parameters"] = self.parameters
        if self.body is not None:
            content = {"application/json": {"schema": self.body}}
            operation["requestBody"] = {"required": True, "content": content}
        method = self.method or ("get" if self.body is None else "post")
        return f"/{tree}/{self.path}" if tree else f"/{self.path}", {method: operation}


def _id(tree: str, name: str) -> str:
    return f"{tree}_{name}" if tree else name


def _paths() -> Document:
    operations = chain(
        _generation(), _stored(), _pooling(), _models(), _tokenizers(), _without_key()
    )
    paths: Document = {}
    for path, item in (each.under(tree) for each in operations for tree in each.trees):
        paths.setdefault(path, {}).update(item)
    return paths


def _generation() -> Iterator[_Operation]:
    chat = _body(ChatBody, "messages", "prompt_token_ids")
    prompts = _body(CompletionsBody, "prompt", "prompt_token_ids")
    items, counted = _body(ResponsesBody, "input"), _body(ResponsesBody, "input", "instructions")
    compactable = _body(ResponsesBody, "input", "previous_response_id", "conversation")
    turns, count = _reference(MessagesBody), _json("The count.", MessageTokens)
    chunks = _streamed(ChatCompletion, ChatCompletionChunk)
    texts, events = _streamed(Completion, Completion), _streamed(Response, ResponseEvent)
    message = _streamed(MessageAnswer, MessageEvent, form=_ANTHROPIC)
    yield _Operation(
        "chat/completions", "createChatCompletion", "Answer a conversation", chunks, chat
    )
    yield _Operation("completions", "createCompletion", "Complete texts", texts, prompts)
    yield _Operation("responses", "createResponse", "Answer items", events, items)
    summary = "Count the tokens of a response's prompt"
    number = _json("The count.", InputTokens)
    yield _Operation("responses/input_tokens", "countInputTokens", summary, number, counted)
    summary, compacted = "Summarize a conversation", _json("The items left.", CompactedResponse)
    yield _Operation("responses/compact", "compactResponse", summary, compacted, compactable)
    summary = "Answer a conversation, for Anthropic's clients"
    yield _Operation("messages", "createMessage", summary, message, turns, form=_ANTHROPIC)
    path, name = "messages/count_tokens", "countMessageTokens"
    summary, turns = "Count the tokens of a message's prompt", _reference(CountBody)
    yield _Operation(path, name, summary, count, turns, form=_ANTHROPIC)


_FLAG: Final = {"type": "boolean"}
_TALK, _CHAT = "conversations/{conversation_id}", "chat/completions/{completion_id}"
_Talk, _Metadata = stored.StoredConversation, stored.StoredMetadataBody
# Operations on what is stored: method and path, summary, body and answer.
_STORED: Final[Sequence[tuple[str, str, type[BaseModel] | None, Form]]] = (
    ("get responses/{response_id}", "Return a response", None, Response),
    ("delete responses/{response_id}", "Delete a response", None, stored.Deleted),
    ("post responses/{response_id}/cancel", "End a background response", None, Response),
    ("get responses/{response_id}/input_items", "List its input", None, stored.ItemList),
    ("post conversations", "Begin a conversation", stored.ConversationBody, _Talk),
    (f"get {_TALK}", "Return a conversation", None, _Talk),
    (f"post {_TALK}", "Change its metadata", _Metadata, _Talk),
    (f"delete {_TALK}", "Delete it with its items", None, stored.Deleted),
    (f"get {_TALK}/items", "List its items", None, stored.ItemList),
    (f"post {_TALK}/items", "Add items", stored.ConversationItemsBody, stored.ItemList),
    (f"get {_TALK}/items/{{item_id}}", "Return an item", None, stored.StoredItem),
    (f"delete {_TALK}/items/{{item_id}}", "Take an item out of it", None, _Talk),
    ("get chat/completions", "List stored chats", None, stored.ChatList),
    (f"get {_CHAT}", "Return a stored chat", None, ChatCompletion),
    (f"post {_CHAT}", "Change its metadata", _Metadata, ChatCompletion),
    (f"delete {_CHAT}", "Delete a stored chat", None, stored.Deleted),
    (f"get {_CHAT}/messages", "List the messages of its request", None, stored.MessageList),
)


def _stored() -> Iterator[_Operation]:
    for route, summary, body, answer in _STORED:
        method, _, path = route.partition(" ")
        yield _Operation(
            path,
            re.sub(r"\W+", "_", route).strip("_"),
            summary,
            _json("The object.", answer),
            None if body is None else _reference(body),
            method=method,
            errors=_INFO_ERRORS if body is None else _BODY_ERRORS,
            parameters=[*_ids_in(path), *_queries(method, answer)],
        )


def _ids_in(path: str) -> Iterator[Document]:
    for name in re.findall(r"{(\w+)}", path):
        schema = {"type": "string", "pattern": "^[^/]+$"}
        yield {"name": name, "in": "path", "required": True, "schema": schema}


def _queries(method: str, answer: Form) -> Iterator[Document]:
    if method == "get" and answer is Response:
        yield {**_query("stream", "Sends the events of a background response."), "schema": _FLAG}
        after = {"type": "integer", "minimum": 0}
        yield {**_query("starting_after", "Of its events, those after this."), "schema": after}
        yield {**_query("include_obfuscation", "Pads its deltas."), "schema": _FLAG}
    if answer in (stored.ItemList, stored.StoredItem) or (method == "get" and answer is Response):
        values = {"type": "array", "items": {"enum": sorted(INCLUDABLE)}}
        yield {**_query("include[]", "As in a response; no value has an effect."), "schema": values}
    if method == "get" and issubclass(answer, stored.StoredList):
        default = "desc" if answer is stored.ItemList else "asc"
        order = {"enum": ["asc", "desc"], "default": default}
        limit = {"type": "integer", "minimum": 1, "maximum": 100, "default": 20}
        yield _query("after", "The id of the last object of the page before.")
        yield {**_query("order", "Of the objects, by their age."), "schema": order}
        yield {**_query("limit", "The most objects of a page."), "schema": limit}
    if answer is stored.ChatList:
        pairs = {"type": "object", "additionalProperties": {"type": "string"}, "maxProperties": 16}
        about = "`metadata[key]=value`: lists the chats alone that have all these pairs."
        yield _query("model", "Lists the chats of this model alone.")
        yield {**_query("metadata", about), "style": "deepObject", "schema": pairs}


def _pooling() -> Iterator[_Operation]:
    vectors, body = _json("The vectors.", pooling.Embeddings), _reference(pooling.EmbeddingsBody)
    yield _Operation("embeddings", "createEmbeddings", "Turn texts into vectors", vectors, body)
    ranked, body = _json("The documents.", pooling.Rerank), _reference(pooling.RerankBody)
    trees, summary = (*_AND_AT_ROOT, "v2"), "Order documents by relevance"
    yield _Operation("rerank", "rerank", summary, ranked, body, trees)
    scores, body = _json("The scores.", pooling.Scores), _reference(pooling.ScoreBody)
    yield _Operation("score", "score", "Score pairs of texts", scores, body, _AND_AT_ROOT)


def _models() -> Iterator[_Operation]:
    description = "Whether models that cannot answer now are listed too."
    yield _Operation(
        "models",
        "listModels",
        "List the models that can answer now",
        _json("The models.", models.ModelList),
        errors=("400", *_READ_ERRORS),
        parameters=[{**_query("all", description), "schema": _FLAG}],
        link=("first", "retrieveModel", {"parameters": {"id": "$response.body#/data/0/id"}}),
    )
    in_path = {"in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
    yield _Operation(
        "models/{id}",
        "retrieveModel",
        "Return one model",
        _json("The model.", models.Model),
        errors=(*_READ_ERRORS, "404"),
        parameters=[{**_query("id", "May contain slashes, percent-encoded."), **in_path}],
    )


def _tokenizers() -> Iterator[_Operation]:
    yield _Operation(
        "tokenize",
        "tokenize",
        "Return the tokens of texts, or of a conversation",
        _json("Their tokens.", tokens.CountedTokens, tokens.Tokens),
        _body(tokens.TokenizeBody, "prompt", "messages", "text"),
        _AND_AT_ROOT,
        link=("back", "detokenize", {"requestBody": {"tokens": "$response.body#/tokens"}}),
    )
    text, body = _json("Their text.", tokens.Detokenized), _reference(tokens.DetokenizeBody)
    forth = ("forth", "tokenize", {"requestBody": {"prompt": "$response.body#/prompt"}})
    summary, trees = "Return the text of tokens", _AND_AT_ROOT
    yield _Operation("detokenize", "detokenize", summary, text, body, trees, link=forth)
    yield _Operation(
        "tokenizer_info",
        "tokenizerInfo",
        "Describe the tokenizer",
        _json("The tokenizer.", models.TokenizerInfo),
        trees=_AND_AT_ROOT,
        errors=_INFO_ERRORS,
        parameters=[_query("model", MODEL)],
    )


def _without_key() -> Iterator[_Operation]:
    openapi = {"application/json": {"schema": {"type": "object"}}}
    itself = {"description": "This document.", "content": openapi}
    version = _json("The version.", models.Version)
    for path, name, summary, answer in (
        ("version", "version", "Return the server's version", version),
        ("openapi.json", "openapi", "Describe this API", itself),
    ):
        yield _Operation(path, name, summary, answer, None, ("",), errors=("405",), has_key=False)


def _query(name: str, description: str) -> Document:
    return {"name": name, "in": "query", "schema": {"type": "string"}, "description": description}


def _streamed(whole: Form, event: Form, form: Form = _OPENAI) -> Document:
    answer = _json("The whole answer, or events if `stream` is true.", whole)
    schema: Document = {"anyOf": [_reference(event)]}
    data: Document = {"type": "string", "contentMediaType": "application/json"}
    contents, last = [{**data, "contentSchema": schema}], ""
    if form is _OPENAI:
        schema["anyOf"].append(_reference(form))
        contents.append({"const": "[DONE]"})
        last = " The data of the last one is `[DONE]`."
    # The schema of one event. OpenAPI has no keyword for streams before 3.2.
    answer["content"]["text/event-stream"] = {
        "schema": {
            "type": "object",
            "description": f"A server-sent event.{last}",
            "properties": {"event": {"type": "string"}, "data": {"anyOf": contents}},
            "required": ["data"],
        }
    }
    return answer


def _body(model: type[BaseModel], *sources: str) -> Document:
    """Return the schema of a body that needs one of the fields `sources`."""
    empty: Document = {"not": {"enum": [None, []]}}
    return {
        "allOf": [_reference(model)],
        "anyOf": [{"required": [name], "properties": {name: empty}} for name in sources],
    }


def _json(description: str, *forms: Form) -> Document:
    schemas = [_reference(form) for form in forms]
    schema = {"anyOf": schemas} if len(schemas) > 1 else schemas[0]
    return {"description": description, "content": {"application/json": {"schema": schema}}}


def _reference(model: type[BaseModel | Answer]) -> Document:
    return {"$ref": PREFIX + model.__name__}


def _headers(*names: str) -> Document:
    return {name: {"$ref": f"#/components/headers/{name}"} for name in names}
