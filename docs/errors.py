"""Renders `docs/errors.md` from the errors' classes and the table."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence

from docs.failures import AT_THE_DOOR, WITH_THE_MODEL, Failure
from docs.markdown import code, table
from docs.refusals import ACCEPTED, EVERYWHERE, INVALID, ONE_BY_ONE, UNSUPPORTED, Row
from serving.core import errors
from serving.core.errors import ServingError
from serving.core.request import Endpoint
from serving.protocols.refused import REFUSED, refusal

_INTRODUCTION = """\
# Errors

*Made from the code by `make docs`. Every row is tested as it stands, on both URL trees.*

Every error has this body, whatever its status, and the headers `x-request-id` and, where a
retry depends on it, `Retry-After` and `x-should-retry`:

```json
{"error": {"message": "`temperature` must be at most 2.", "type": "invalid_request_error",
           "param": "temperature", "code": "invalid_value"}}
```

The message is a sentence for people: it says what to change. `param` is the path of the
field, such as `messages[2].content`, and `code` is what programs go by. A streamed answer
that has begun says 200 and ends with the error: in chats and completions as a last event
with this body, in Responses as the events `error` and `response.failed`.
"""
_MAX_VALUE_CHARS = 100


def errors_page() -> str:
    """The whole page."""
    return "\n".join(
        (
            _INTRODUCTION,
            "## All codes\n",
            _codes(),
            "## Before the body is read\n",
            _failures(AT_THE_DOOR),
            "## Fields of every endpoint\n",
            "Status 400, type `invalid_request_error`, code `invalid_value`.\n",
            _everywhere(),
            *_each_endpoint(),
            "## What the model knows\n",
            "Type `invalid_request_error`. Here for a model with 2048 tokens of context, 3072 in "
            "its vocabulary, and a template that takes no documents.\n",
            _failures(WITH_THE_MODEL),
            "## Fields that are refused\n",
            f"Status 400, type `invalid_request_error`, code `{UNSUPPORTED}`; `param` is the "
            "field. Null, and the values that ask for nothing special, are accepted.\n",
            _refused(),
            "## What is accepted here\n",
            "Other servers refuse these, or get them wrong.\n",
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
        if kind is not ServingError
    ]
    rows.append(("500", code("server_error"), code("null"), "as it is", "Nobody foresaw this."))
    return table(("status", "type", "code", "retry", "when"), rows)


def _kinds(root: type[ServingError]) -> Iterator[type[ServingError]]:
    yield root
    for kind in root.__subclasses__():
        if kind.__module__ == errors.__name__:
            yield from _kinds(kind)


def _retry(kind: type[ServingError]) -> str:
    if kind.should_retry is False:
        return "no use"
    if kind.retry_after_s is not None:
        return f"after {kind.retry_after_s} s"
    return "as it is" if kind.status >= 500 else "after a change"


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


def _everywhere() -> str:
    rows = [
        (code(field), code(_value(value)), f"`{field}` {sentence}.")
        for field, value, sentence in EVERYWHERE
    ]
    return table(("param", "value", "message"), rows)


def _each_endpoint() -> Iterator[str]:
    for endpoint, rows in ONE_BY_ONE.items():
        yield f"## {endpoint}\n"
        yield "Status 400, type `invalid_request_error`.\n"
        yield _endpoint(rows)


def _endpoint(rows: Sequence[Row]) -> str:
    told = sorted(rows, key=lambda row: row.code != INVALID)
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
            for row in told
        ],
    )


def _refused() -> str:
    sentences: dict[tuple[str, str], list[str]] = {}
    for endpoint in Endpoint:
        for name in REFUSED[endpoint]:
            sentences.setdefault((name, refusal(endpoint, name)), []).append(str(endpoint))
    rows = [
        (code(name), "all" if len(where) == len(Endpoint) else ", ".join(where), sentence)
        for (name, sentence), where in sorted(sentences.items())
    ]
    return table(("param", "endpoints", "message"), rows)


def _accepted() -> str:
    rows = [
        (
            "all" if len(endpoints) == len(Endpoint) else ", ".join(endpoints),
            code(_value(dict(fields))),
            meaning,
        )
        for endpoints, fields, meaning in ACCEPTED
    ]
    return table(("endpoints", "body", "meaning"), rows)


def _value(value: object) -> str:
    return _short(json.dumps(value, ensure_ascii=False))


def _short(text: str, limit: int = _MAX_VALUE_CHARS) -> str:
    return text if len(text) <= limit else f"{text[:limit]}…"
