"""Renders `docs/parameters.md`: each parameter, and what Vinery does with it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from docs.markdown import code, table
from vinery_serving.core.field_limits import FIELD_LIMITS
from vinery_serving.core.tasks import Endpoint
from vinery_serving.gateway.preparing.checks import CLIENT_DEFAULTS
from vinery_serving.protocols.common.body_fields import FOREIGN, REFUSED
from vinery_serving.protocols.common.reading import parameter_of
from vinery_serving.protocols.openapi import BODIES

_INTRODUCTION = """\
# Parameters

*Generated from the code by `make docs`.*

This page lists every parameter that OpenVINO Model Server, OpenAI, vLLM or FastDeploy document,
and what Vinery does with it, on both URL trees: `/v1` has OpenAI's defaults, `/v3` OpenVINO
Model Server's. The row states where they differ. A parameter is

- **honoured**: it does what the row describes,
- **accepted**: it does not change the generated text, and the answer repeats the value where the
  answer has a member for it, or
- **refused**: the server answers with status 400, the parameter's name and the reason in the
  row. Null, and values that ask for the default, are accepted.

The server's OpenAPI document at `/openapi.json` has the same names, the types and limits, and the
answers. [errors.md](errors.md) has the codes of errors.
"""
_LIMITS = """\
The server checks these limits before any work with a field. A request above a limit gets status
400, with the field's name, the limit and the size that was sent. The setting replaces the
default; the OpenAPI document of a server has the limits of its settings. A model has further
limits: the context, and limits that the administrator sets. A prompt whose bytes cannot be few
enough tokens for the context is refused before it is rendered or tokenized, unless the request
lets the server shorten it (`truncate_prompt_tokens`, `truncation`).
"""
_NO_EFFECT = """\
No field is dropped without a trace. The header `x-vinery-ignored` of an answer, of a stream, or
of an error after the body was read, names the fields that took no effect, such as
`x-vinery-ignored: store, tools.web_search, chat_id, +2 more`. These are

- unknown fields, which no table of this page has, also in objects of options and in formats
  (`stream_options.x`, `response_format.json_schema.x`). With `VINERY_UNKNOWN_FIELDS=refuse` the
  server answers 400 `unknown_parameter` instead;
- unknown members of messages, their parts, items and tools, without indices (`messages.content.x`,
  `tools.function.x`): at most 32 names. Clients keep data of their own there, so these members
  are never refused;
- `store: true` where the answer is not stored, such as in completions, and in Responses the tools
  that only OpenAI hosts, such as `tools.web_search`, which the model does not get. With
  `VINERY_HOSTED_FEATURES=refuse` the server answers 400 `unsupported_parameter` instead;
- parameters of other servers that cannot change the answer, from the table below; and the header
  `anthropic-beta`, because only the fields of the body decide;
- `model`, if Azure's URL names another one;
- a schema without `strict: true` that is too much for the grammar compiler, such as
  `response_format.json_schema.schema`, or `tools.parameters`: any JSON object or value fits then.

The header has at most sixteen names; names with other characters than letters, digits, `_`, `.`
and `-` are only counted. `vinery_ignored_fields_total` in `/metrics` counts the requests.
"""
_MESSAGES = """\
Anthropic's protocol. The other systems' parameters work here, too, unless the table refuses them.
Other fields of the body that Anthropic documents are refused by name if they would change the
answer; `x-vinery-ignored` names the rest, also in blocks and tools:

- blocks: `text`, `image`, `document` with each source but stored files, `search_result` (title,
  source and texts), `tool_use`, `tool_result` and `thinking` are sent to the model. A
  `redacted_thinking` is left out. Blocks of tools that Anthropic runs are refused, and so are
  citations;
- tools that Anthropic runs or defines are refused. `input_examples` follow the tool's description;
  `defer_loading` takes no effect: the model gets all tools;
- `cache_control` takes no effect: the prefix cache is automatic;
- `stop_reason` is `model_context_window_exceeded` if the server clamped `max_tokens` and the answer
  filled the context. A prompt that is too long is refused. `stop_reason` is never `refusal`,
  because no classifier watches the answers, and never `pause_turn`.
"""
_EMBEDDINGS = """\
The paths are `/v1/embeddings` and `/v3/embeddings`. Both have the same fields and defaults.
[Embeddings and reranking](guides/embeddings.md) has examples.
"""
_RERANK = """\
The paths are `/v1/rerank`, `/v3/rerank`, `/v2/rerank` (Cohere's clients) and `/rerank` (Jina's and
vLLM's).
"""
_SCORE = """\
The paths are `/v1/score`, `/v3/score` and `/score`. A request has `text_1` and `text_2`, `queries`
and `documents`, or `data_1` and `data_2`.
"""
_CLAMPED = """\
`max_tokens`, `max_completion_tokens` or `max_output_tokens` may be more than the context has room
for, or than the model's `max_tokens_limit`. A number that clients send by default is then clamped
to what fits: the answer has the header `x-vinery-clamped: max_tokens=1987`, and ends with the
reason `length` if it gets that far. Other numbers are refused with status 400. The option
`clamp_max_tokens` of a served model changes this: with `always` any number is clamped, with
`never` none is. -1 asks for as many tokens as fit. These are the numbers that clients send by
default:
"""
_FOREIGN = """\
Parameters of other servers that are not in the tables above. A parameter with exactly the meaning
of a parameter of this server is **honoured**: a value that contradicts the latter is refused. Any
other parameter that would change the answer is **refused** with status 400. A parameter that
cannot change the answer is **ignored**, and the header names it. The endpoint's own fields come
first: these rows are for the endpoints that generate text and have no such field.
"""
_NOTES: Final[Mapping[Endpoint, str]] = {
    Endpoint.MESSAGES: _MESSAGES,
    Endpoint.EMBEDDINGS: _EMBEDDINGS,
    Endpoint.RERANK: _RERANK,
    Endpoint.SCORE: _SCORE,
}
_STORED = """\
A project keeps responses and chats for the days that its owner sets, encrypted, and conversations
until they are deleted. All keys of the project see them; for other keys an id is unknown (404). The
paths are the same under `/v1` and `/v3`:

| path | methods |
| --- | --- |
| `responses/ID` | GET: with `stream=true` the events of a background response, after number \
`starting_after`, their deltas padded with `include_obfuscation=true`; DELETE |
| `responses/ID/cancel` | POST: ends a background response |
| `responses/ID/input_items` | GET: a page of what came before the response, and of its input |
| `responses/compact` | POST: [a summary](guides/agents.md#6-long-conversations) of `input` |
| `conversations` | POST: at most 20 `items`, and `metadata` |
| `conversations/ID` | GET, POST with new `metadata`, DELETE: also its items |
| `conversations/ID/items` | GET: a page; POST: 1 to 20 `items` |
| `conversations/ID/items/ID` | GET, DELETE: answers with the conversation |
| `chat/completions` | GET: a page of stored chats, by `model` and `metadata[key]=value` |
| `chat/completions/ID` | GET, POST with new `metadata`, DELETE |
| `chat/completions/ID/messages` | GET: a page of the messages of the request |

- A page has `limit` objects (1 to 100, or 20), or fewer if these have more than 32 MB together;
  `order` is `asc` or `desc`, and `after` the id of the last object of the page before.
- A key needs the scope `inference`. A key whose endpoints are limited needs `responses` for stored
  responses and conversations, and `chat/completions` for stored chats: a key that may not ask may
  not read answers either. `responses` is also needed for `responses/input_tokens`, which counts
  stored items, and for `responses/compact`. The models of a key do not matter for reading.
- A project with 0 days, or whose days nobody has decided, stores nothing: responses say
  `store: false`, and new conversations and items get 400. What is stored stays until its term.
- New conversations, items and metadata count for the rate limits on requests.
- One response runs in a conversation at a time; another gets 400 `conversation_locked`.
- An item belongs to each response and conversation that has it. An item that is in a conversation
  already is not added again.
"""
# The start of a description, for a member that the parser refuses.
_REFUSED = "Refused: "


class Row(NamedTuple):
    name: str
    state: str
    description: str


def parameters_page() -> str:
    return "\n".join(
        (
            _INTRODUCTION,
            *_endpoints(),
            "## Stored responses, conversations and chats\n",
            _STORED,
            "## Fields that take no effect\n",
            _NO_EFFECT,
            "## Limits of output tokens that do not fit\n",
            _CLAMPED,
            _client_defaults(),
            "## Parameters of other servers\n",
            _FOREIGN,
            _foreign(),
            "## Limits of fields\n",
            _LIMITS,
            _limits(),
        )
    )


def rows_of(endpoint: Endpoint) -> Iterator[Row]:
    """Yield the parameters of `endpoint`, the refused ones last."""
    refused = REFUSED[endpoint]
    for name, field in parameters(BODIES[endpoint]):
        described = parameter_of(field)
        if described is None or name in refused:
            continue
        description = field.description or ""
        state = "accepted" if described.changes_nothing else "honoured"
        if description.startswith(_REFUSED):
            state, description = "refused", description.removeprefix(_REFUSED)
        yield Row(name, state, description)
    for name, each in refused.items():
        yield Row(name, "refused", each.message(name))


def parameters(model: type[BaseModel], path: str = "") -> Iterable[tuple[str, FieldInfo]]:
    """Yield the path and the field of each parameter, such as `text.format.name`."""
    for name, field in model.model_fields.items():
        if parameter_of(field) is None:
            continue
        yield f"{path}{field.alias or name}", field
        inner = _inner_model(field.annotation)
        if inner is not None:
            yield from parameters(inner, f"{path}{field.alias or name}.")


def _inner_model(annotation: Any) -> type[BaseModel] | None:
    """Return the model in `Model` or `Model | None`, or None for any other type."""
    options = getattr(annotation, "__args__", (annotation,))
    models = [each for each in options if isinstance(each, type) and issubclass(each, BaseModel)]
    is_object = len(models) == 1 and getattr(annotation, "__origin__", None) is None
    return models[0] if is_object else None


def _endpoints() -> Iterator[str]:
    for endpoint in Endpoint:
        yield f"## {endpoint}\n"
        if endpoint in _NOTES:
            yield _NOTES[endpoint]
        cells = (
            (code(row.name), f"**{row.state}**: {row.description}") for row in rows_of(endpoint)
        )
        yield table(("parameter", "Vinery"), cells)


def _client_defaults() -> str:
    rows = ((f"{number:,}", source) for number, source in CLIENT_DEFAULTS.items())
    return table(("number", "of"), rows)


def _foreign() -> str:
    rows = (
        (code(each.name), each.servers, f"**{state}**: {text}")
        for each in FOREIGN.values()
        for state, text in [each.outcome]
    )
    return table(("parameter", "of", "Vinery"), rows)


def _limits() -> str:
    rows = (
        (
            f"{limit.fields}",
            limit.counted.value,
            f"{limit.default:,}",
            limit.source,
            code(limit.setting),
        )
        for limit in FIELD_LIMITS
    )
    return table(("field", "what is counted", "default", "number of", "setting"), rows)
