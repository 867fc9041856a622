"""The OpenAPI 3.1 document of the API, from the types that parse requests and write answers.

The members of a union of bodies differ in role or type. The models leave both to the union's tags,
such as `<role=tool>` and `<nested type=custom>`; members with other tags differ in their fields.
The schemas leave out members that exist only to refuse a value.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pydantic import BaseModel, TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from vinery_serving.core import field_limits
from vinery_serving.core.dialects import DIALECTS
from vinery_serving.core.tasks import GENERATION_ENDPOINTS, Endpoint
from vinery_serving.protocols import pooling, stored, tokens
from vinery_serving.protocols.chat import ChatBody, ChatCompletion, ChatCompletionChunk
from vinery_serving.protocols.common.body_fields import FOREIGN, REFUSED
from vinery_serving.protocols.common.encoding import Answer, Error
from vinery_serving.protocols.common.reading import MODEL
from vinery_serving.protocols.completions import Completion, CompletionsBody
from vinery_serving.protocols.messages import exchange
from vinery_serving.protocols.messages.body import CountBody, MessagesBody
from vinery_serving.protocols.responses import objects
from vinery_serving.protocols.responses.body import INCLUDABLE, ResponsesBody

Document = dict[str, Any]
Schema = dict[str, Any]
PREFIX: Final = "#/components/schemas/"

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
have their own limits; docs/parameters.md has the settings that replace them. A model has \
further limits: the context, and limits that the administrator sets.

Errors and lists of models have OpenAI's form, or Anthropic's for requests with the header \
`anthropic-version`. Errors of `/messages` always have Anthropic's form.

The key is a bearer token, or the value of the header `api-key` or `x-api-key`. The paths of \
Azure's clients work too: `/openai/v1/...`, and `/openai/deployments/MODEL/chat/completions`, \
whose model replaces that of the body.

Every answer has the header `x-request-id`. `x-vinery-ignored` names the fields of a body that \
took no effect, `x-vinery-clamped` the limit of output tokens if it is less than the body asks \
for, and `Retry-After` the seconds to wait before the next try. docs/errors.md has all statuses \
and codes.

This document needs no key."""

Form = type[Answer]
# The forms of errors.
_OPENAI: Final = Error
_ANTHROPIC: Final = exchange.MessageError


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
            "responses": {
                form.__name__: _json("An error.", form) for form in (_OPENAI, _ANTHROPIC)
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
                each.name: ": ".join(each.outcome)
                for each in FOREIGN.values()
                if each.name not in known
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
    return schemas


# -- Operations

# vLLM's and Jina's clients send some paths without a tree; only Cohere's send `/v2`.
_TREES: Final = tuple(DIALECTS)
_AT_ROOT: Final = (*_TREES, "")
_FLAG: Final = {"type": "boolean"}


@dataclass(frozen=True, slots=True)
class _Operation:
    """A method and a path. `answer` is one of several forms, or any object; `event` the form of the
    events of a stream; `form` that of errors. The body has one of the fields `needs`."""

    route: str
    summary: str
    answer: tuple[Form, ...] = ()
    body: type[BaseModel] | None = None
    name: str = ""  # Default: the words of the route
    needs: tuple[str, ...] = ()
    event: Form | None = None
    trees: tuple[str, ...] = _TREES
    form: Form = _OPENAI
    has_key: bool = True

    def under(self, tree: str) -> tuple[str, Document]:
        """Return the path and its item in the URL tree `tree`; "": at the root."""
        method, _, path = self.route.partition(" ")
        name = self.name or re.sub(r"\W+", "_", self.route).strip("_")
        answer = _json("The answer.", *self.answer)
        if self.event is not None:
            answer["content"]["text/event-stream"] = _events(self.event, self.form)
        errors = {"$ref": f"#/components/responses/{self.form.__name__}"}
        operation: Document = {
            "operationId": f"{tree}_{name}" if tree else name,
            "summary": self.summary,
            "tags": [tree or "server"],
            "responses": {"200": answer, "default": errors},
            **({} if self.has_key else {"security": []}),
        }
        if parameters := [*_ids_in(path), *_queries(self.route, self.answer)]:
            operation["parameters"] = parameters
        if self.body is not None:
            schema = _reference(self.body)
            content = {"application/json": {"schema": _needing(schema, self.needs)}}
            operation["requestBody"] = {"required": True, "content": content}
        return f"/{tree}/{path}" if tree else f"/{path}", {method: operation}


def _paths() -> Document:
    paths: Document = {}
    for path, item in (each.under(tree) for each in _OPERATIONS for tree in each.trees):
        paths.setdefault(path, {}).update(item)
    return paths


_TALK, _CHAT = "conversations/{conversation_id}", "chat/completions/{completion_id}"
_Talk, _Metadata = stored.StoredConversation, stored.StoredMetadataBody
_OPERATIONS: Final = (
    _Operation(
        "post chat/completions", "Answer a conversation", (ChatCompletion,), ChatBody,
        "createChatCompletion", ("messages", "prompt_token_ids"), ChatCompletionChunk,
    ),
    _Operation(
        "post completions", "Complete texts", (Completion,), CompletionsBody,
        "createCompletion", ("prompt", "prompt_token_ids"), Completion,
    ),
    _Operation(
        "post responses", "Answer items", (objects.Response,), ResponsesBody,
        "createResponse", ("input",), objects.ResponseEvent,
    ),
    _Operation(
        "post responses/input_tokens", "Count the tokens of a response's prompt",
        (objects.InputTokens,), ResponsesBody, "countInputTokens", ("input", "instructions"),
    ),
    _Operation(
        "post responses/compact", "Summarize a conversation",
        (objects.CompactedResponse,), ResponsesBody, "compactResponse",
        ("input", "previous_response_id", "conversation"),
    ),
    _Operation(
        "post messages", "Answer a conversation, for Anthropic's clients",
        (exchange.MessageAnswer,), MessagesBody, "createMessage",
        event=exchange.MessageEvent, form=_ANTHROPIC,
    ),
    _Operation(
        "post messages/count_tokens", "Count the tokens of a message's prompt",
        (exchange.MessageTokens,), CountBody, "countMessageTokens", form=_ANTHROPIC,
    ),
    _Operation("get responses/{response_id}", "Return a response", (objects.Response,)),
    _Operation("delete responses/{response_id}", "Delete a response", (stored.Deleted,)),
    _Operation(
        "post responses/{response_id}/cancel", "End a background response", (objects.Response,)
    ),
    _Operation("get responses/{response_id}/input_items", "List its input", (stored.ItemList,)),
    _Operation("post conversations", "Begin a conversation", (_Talk,), stored.ConversationBody),
    _Operation(f"get {_TALK}", "Return a conversation", (_Talk,)),
    _Operation(f"post {_TALK}", "Change its metadata", (_Talk,), _Metadata),
    _Operation(f"delete {_TALK}", "Delete it with its items", (stored.Deleted,)),
    _Operation(f"get {_TALK}/items", "List its items", (stored.ItemList,)),
    _Operation(
        f"post {_TALK}/items", "Add items", (stored.ItemList,), stored.ConversationItemsBody
    ),
    _Operation(f"get {_TALK}/items/{{item_id}}", "Return an item", (stored.StoredItem,)),
    _Operation(f"delete {_TALK}/items/{{item_id}}", "Take an item out of it", (_Talk,)),
    _Operation("get chat/completions", "List stored chats", (stored.ChatList,)),
    _Operation(f"get {_CHAT}", "Return a stored chat", (ChatCompletion,)),
    _Operation(f"post {_CHAT}", "Change its metadata", (ChatCompletion,), _Metadata),
    _Operation(f"delete {_CHAT}", "Delete a stored chat", (stored.Deleted,)),
    _Operation(f"get {_CHAT}/messages", "List the messages of its request", (stored.MessageList,)),
    _Operation(
        "post embeddings", "Turn texts into vectors", (pooling.Embeddings,),
        pooling.EmbeddingsBody, "createEmbeddings",
    ),
    _Operation(
        "post rerank", "Order documents by relevance", (pooling.Rerank,), pooling.RerankBody,
        "rerank", trees=(*_AT_ROOT, "v2"),
    ),
    _Operation(
        "post score", "Score pairs of texts", (pooling.Scores,), pooling.ScoreBody,
        "score", trees=_AT_ROOT,
    ),
    _Operation(
        "get models", "List the models that can answer now", (stored.ModelList,),
        name="listModels",
    ),
    _Operation("get models/{id}", "Return one model", (stored.Model,), name="retrieveModel"),
    _Operation(
        "post tokenize", "Return the tokens of texts, or of a conversation",
        (tokens.CountedTokens, tokens.Tokens), tokens.TokenizeBody,
        "tokenize", ("prompt", "messages", "text"), trees=_AT_ROOT,
    ),
    _Operation(
        "post detokenize", "Return the text of tokens", (tokens.Detokenized,),
        tokens.DetokenizeBody, "detokenize", trees=_AT_ROOT,
    ),
    _Operation(
        "get tokenizer_info", "Describe the tokenizer", (stored.TokenizerInfo,),
        name="tokenizerInfo", trees=_AT_ROOT,
    ),
    _Operation(
        "get version", "Return the server's version", (stored.Version,),
        name="version", trees=("",), has_key=False,
    ),
    _Operation(
        "get openapi.json", "Describe this API", name="openapi", trees=("",), has_key=False
    ),
)  # fmt: skip
BODIES: Final[Mapping[Endpoint, type[BaseModel]]] = {
    Endpoint(path): each.body
    for each in _OPERATIONS
    if each.body is not None and (path := each.route.removeprefix("post ")) in set(Endpoint)
}


def _ids_in(path: str) -> Iterator[Document]:
    for name in re.findall(r"{(\w+)}", path):
        schema = {"type": "string", "minLength": 1}
        yield {"name": name, "in": "path", "required": True, "schema": schema}


def _queries(route: str, answer: tuple[Form, ...]) -> Iterator[Document]:
    method, form = route.partition(" ")[0], answer[0] if answer else Answer
    if method == "get" and form is objects.Response:
        yield {**_query("stream", "Sends the events of a background response."), "schema": _FLAG}
        after = {"type": "integer", "minimum": 0}
        yield {**_query("starting_after", "Of its events, those after this."), "schema": after}
        yield {**_query("include_obfuscation", "Pads its deltas."), "schema": _FLAG}
    if form in (stored.ItemList, stored.StoredItem) or (
        method == "get" and form is objects.Response
    ):
        values = {"type": "array", "items": {"enum": sorted(INCLUDABLE)}}
        yield {**_query("include[]", "As in a response; no value has an effect."), "schema": values}
    if method == "get" and issubclass(form, stored.StoredList):
        default = "desc" if form is stored.ItemList else "asc"
        order = {"enum": ["asc", "desc"], "default": default}
        limit = {"type": "integer", "minimum": 1, "maximum": 100, "default": 20}
        yield _query("after", "The id of the last object of the page before.")
        yield {**_query("order", "Of the objects, by their age."), "schema": order}
        yield {**_query("limit", "The most objects of a page."), "schema": limit}
    if form is stored.ChatList:
        pairs = {"type": "object", "additionalProperties": {"type": "string"}, "maxProperties": 16}
        about = "`metadata[key]=value`: lists the chats alone that have all these pairs."
        yield _query("model", "Lists the chats of this model alone.")
        yield {**_query("metadata", about), "style": "deepObject", "schema": pairs}
    if form is stored.ModelList:
        yield {**_query("all", "Also models that cannot answer now."), "schema": _FLAG}
    if form is stored.TokenizerInfo:
        yield _query("model", MODEL)


def _query(name: str, description: str) -> Document:
    return {"name": name, "in": "query", "schema": {"type": "string"}, "description": description}


def _events(event: Form, form: Form) -> Document:
    """Return the schema of one event. OpenAPI has no keyword for streams before 3.2."""
    schema: Document = {"anyOf": [_reference(event)]}
    data: Document = {"type": "string", "contentMediaType": "application/json"}
    contents, last = [{**data, "contentSchema": schema}], ""
    if form is _OPENAI:
        schema["anyOf"].append(_reference(form))
        contents.append({"const": "[DONE]"})
        last = " The data of the last one is `[DONE]`."
    described = {
        "type": "object",
        "description": f"A server-sent event.{last}",
        "properties": {"event": {"type": "string"}, "data": {"anyOf": contents}},
        "required": ["data"],
    }
    return {"schema": described}


def _needing(schema: Document, names: tuple[str, ...]) -> Document:
    """Return the schema of a body that needs one of these fields."""
    if not names:
        return schema
    empty: Document = {"not": {"enum": [None, []]}}
    needed = [{"required": [name], "properties": {name: empty}} for name in names]
    return {"allOf": [schema], "anyOf": needed}


def _json(description: str, *forms: Form) -> Document:
    """Return an answer of one of these forms; of none: of any object."""
    schemas = [_reference(form) for form in forms] or [{"type": "object"}]
    schema = {"anyOf": schemas} if len(schemas) > 1 else schemas[0]
    return {"description": description, "content": {"application/json": {"schema": schema}}}


def _reference(model: type[BaseModel | Answer]) -> Document:
    return {"$ref": PREFIX + model.__name__}
