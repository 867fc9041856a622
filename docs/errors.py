"""Renders `docs/errors.md` from the error classes, the parameters and the tables."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence

from pydantic import BaseModel

from docs.failures import BEFORE_THE_BODY, WITH_OTHER_TASKS, WITH_THE_MODEL, Failure
from docs.markdown import code, table
from docs.mistakes import ACCEPTED, INVALID, MISTAKES, UNSUPPORTED, Mistake, wrong
from docs.wrong_values import wrong_values
from vinery_serving.core import errors
from vinery_serving.core.errors import ClientError, LimitReached, Overloaded, ServingError
from vinery_serving.core.tasks import GENERATION_ENDPOINTS, POOLING_ENDPOINTS, Endpoint
from vinery_serving.media import rules
from vinery_serving.protocols.common.generation import GenerationBody
from vinery_serving.protocols.common.refused import REFUSED
from vinery_serving.protocols.openapi.document import BODIES
from vinery_serving.protocols.pooling.common import PoolingBody

_INTRODUCTION = """\
# Errors

*Generated from the code by `make docs`. Every row is tested on both URL trees.*

Every error has this body and the header `x-request-id`. Some also have the headers
`Retry-After` and `x-should-retry`:

```json
{"error": {"message": "`temperature` must be at most 2.", "type": "invalid_request_error",
           "param": "temperature", "code": "invalid_value"}}
```

The message is for people: it states what to change. `param` is the path of the field, such as
`messages[2].content`. Programs should compare `code`. A stream that has begun has the status
200 and ends with the error: in chats and completions with a last event that has this body, in
Responses with the events `error` and `response.failed`.
"""
_INTERRUPTED = """\
An engine may be killed, crash or hang, or be replaced, while it runs a request. The next engine
goes on with the answer: a stream pauses, with keep-alives, and a unary answer comes later. Tokens
are counted once, and the usage record has `num_continuations`.

| answer | how it goes on |
| --- | --- |
| greedy, with or without drafts, `logit_bias` and similar | with the same tokens |
| sampled without a `seed` | after its tokens so far, with new random numbers |
| sampled with a `seed`, `frequency_penalty`, `presence_penalty`, a schema, pattern, grammar or \
forced call | it is generated again from the prompt, and compared: with the same tokens, or, if it \
is streamed, with the error `not_continued` |
| several choices | those that have ended stay as they are, the others as above |
| log-probabilities | those that were sent are not sent again |
| beam search | it begins anew: nothing of it was sent before its end |

If a token that is generated again differs from the one that was sent, a stream ends with \
`not_continued`: the rest would not fit to its beginning. Send the request again. A unary answer \
begins anew: nothing of it was sent, and what was dropped is not charged. An answer also ends \
with `engine_lost` (see above), with `deadline_exceeded` when no engine is back within its time, \
and with `model_not_ready` when its model was unloaded.

A web process holds the connections of its clients. If it is killed or stands still, they break: a \
stream ends without its last event, and a request without an answer. No other process can go on \
with a connection, so send the request again. What was generated is in the usage records, with the \
outcome `interrupted`. Connections that were not accepted yet wait for the next process. \
[Deployment](guides/deployment.md#restarts-and-what-clients-notice) has what clients notice of \
restarts.
"""
_MAX_VALUE_CHARS = 100
_ALL = "all that generate text"
# Errors that are no classes of their own: status, type, code, retry, when.
_WITHOUT_A_CLASS = (
    (
        "400",
        code("invalid_request_error"),
        code("invalid_json"),
        "after a change",
        "The body is not a JSON object, or cannot be read as one.",
    ),
    (
        "429",
        code("insufficient_quota"),
        code("insufficient_quota"),
        "never",
        "A quota is used up. The message names it, and when it resets.",
    ),
    ("500", code("server_error"), code("null"), "unchanged", "An unexpected error."),
)


def errors_page() -> str:
    """Return the whole page."""
    return "\n".join(
        (
            _INTRODUCTION,
            "## All codes\n",
            _codes(),
            "## Answers that are interrupted\n",
            _INTERRUPTED,
            "## Before the body is read\n",
            _failures(BEFORE_THE_BODY),
            "## Fields of every endpoint that generates text\n",
            "Status 400, type `invalid_request_error`, code `invalid_value`. Responses "
            "refuse a few of these fields with any value.\n",
            _everywhere(GenerationBody),
            "## Fields of embeddings, rerank and score\n",
            "Status 400, type `invalid_request_error`, code `invalid_value`.\n",
            _everywhere(PoolingBody),
            *_each_endpoint(),
            "## Errors that depend on the model\n",
            "Type `invalid_request_error`. The rows are those of a model with a context of 2048 "
            "tokens, a vocabulary of 3072, and a template without documents.\n",
            _failures(WITH_THE_MODEL),
            "The rows are those of an embeddings model that takes 512 tokens of one text, has a "
            "vocabulary of 2048 and vectors of 96 numbers, and of a rerank model.\n",
            _failures(WITH_OTHER_TASKS),
            "## Fields that are refused\n",
            f"Status 400, type `invalid_request_error`, code `{UNSUPPORTED}`; `param` is the "
            "field. Null, and the values that ask for the default, are accepted.\n",
            _refused(),
            "## Bodies that are accepted\n",
            "Other servers refuse or misread them.\n",
            _accepted(),
        )
    )


def _codes() -> str:
    rows = [
        (
            str(kind.status),
            code(kind.type),
            code(kind.code or "null"),
            _retry(kind),
            " ".join((kind.__doc__ or "").split("\n\n")[0].split()),
        )
        for kind in _kinds(ServingError)
        if kind not in (ServingError, ClientError)
    ]
    return table(("status", "type", "code", "retry", "when"), [*rows, *_WITHOUT_A_CLASS])


def _kinds(root: type[ServingError]) -> Iterator[type[ServingError]]:
    yield root
    for kind in root.__subclasses__():
        if kind.__module__ in (errors.__name__, rules.__name__):
            yield from _kinds(kind)


def _retry(kind: type[ServingError]) -> str:
    if kind.should_retry is False:
        return "never"
    if kind is LimitReached:
        return "after the time in its headers"
    if issubclass(kind, Overloaded):
        return "when there is room"
    if kind.retry_after_s is not None:
        return f"after {kind.retry_after_s} s"
    return "unchanged" if kind.status >= 500 else "after a change"


def _failures(failures: Iterable[Failure]) -> str:
    rows = [
        (
            f"{each.method} {code(each.path)}",
            _short(each.mistake),
            str(each.status),
            code(each.code),
            "" if each.param is None else code(each.param),
            each.message,
        )
        for each in failures
    ]
    return table(("request", "mistake", "status", "code", "param", "message"), rows)


def _everywhere(body: type[BaseModel]) -> str:
    rows = [
        (code(field), code(_value(value)), f"`{field}` {sentence}.")
        for field, value, sentence in wrong_values(body)
    ]
    return table(("param", "value", "message"), rows)


def _each_endpoint() -> Iterator[str]:
    for endpoint, body in BODIES.items():
        base = PoolingBody if endpoint in POOLING_ENDPOINTS else GenerationBody
        values = wrong_values(body, without=base)
        single = [wrong(name, {name: value}, sentence) for name, value, sentence in values]
        yield f"## {endpoint}\n"
        yield "Status 400, type `invalid_request_error`.\n"
        yield _endpoint([*single, *MISTAKES[endpoint]])


def _endpoint(rows: Sequence[Mistake]) -> str:
    ordered = sorted(rows, key=lambda row: row.code != INVALID)
    return table(
        ("body", "trees", "code", "param", "message"),
        [
            (
                code(_value(dict(row.fields))),
                ", ".join(row.trees),
                code(row.code),
                code(_short(row.param)),
                _short(row.message, 400),
            )
            for row in ordered
        ],
    )


def _refused() -> str:
    messages: dict[tuple[str, str], list[str]] = {}
    for endpoint in Endpoint:
        for name, refused in REFUSED[endpoint].items():
            messages.setdefault((name, refused.message(name)), []).append(str(endpoint))
    rows = [
        (code(name), _names(where), message) for (name, message), where in sorted(messages.items())
    ]
    return table(("param", "endpoints", "message"), rows)


def _accepted() -> str:
    rows = [
        (_names(endpoints), code(_value(dict(fields))), meaning)
        for endpoints, fields, meaning in ACCEPTED
    ]
    return table(("endpoints", "body", "meaning"), rows)


def _names(endpoints: Sequence[str]) -> str:
    return _ALL if len(endpoints) == len(GENERATION_ENDPOINTS) else ", ".join(endpoints)


def _value(value: object) -> str:
    return _short(json.dumps(value, ensure_ascii=False))


def _short(text: str, limit: int = _MAX_VALUE_CHARS) -> str:
    return text if len(text) <= limit else f"{text[:limit]}…"
