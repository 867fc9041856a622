"""Renders `docs/errors.md`: each code, and what a client does about it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from docs.markdown import code, table
from vinery_serving.core import errors
from vinery_serving.core.errors import ClientError, ServingError
from vinery_serving.media import rules

_INTRODUCTION = """\
# Errors

*Generated from the code by `make docs`.*

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

Many clients retry 429 and every status from 500 by themselves: `Retry-After` says when, and
`x-should-retry: false` that a retry does not help. [Parameters](parameters.md) has the refused
fields, and the limits of the others.
"""
_INTERRUPTED = """\
An engine may be killed, crash, hang or be replaced while it runs a request. The next engine
continues the answer: a stream pauses, with keep-alives, and a unary answer comes later. Tokens
are counted once, and the usage record has `num_continuations`.

| answer | continuation |
| --- | --- |
| greedy, with or without drafts, `logit_bias` and similar | with the same tokens |
| sampled without a `seed` | after its tokens so far, with new random numbers |
| sampled with a `seed`, `frequency_penalty`, `presence_penalty`, a schema, pattern, grammar or \
forced call | generated again from the prompt, and compared: with the same tokens, or in a stream \
with the error `not_continued` |
| several choices | finished choices stay, the others continue as above |
| log-probabilities | each is sent once |
| beam search | starts again: nothing was sent before the end |

If a token that is generated again differs from the token that was sent, a stream ends with \
`not_continued`, because the rest would not fit. Send the request again. A unary answer starts \
again: nothing was sent, and dropped tokens are not charged. An answer also ends with \
`engine_lost` (see above), with `deadline_exceeded` when no engine is back before the deadline, \
and with `model_not_ready` when the model was unloaded.

A web process holds the connections of its clients. If the process is killed or hangs, the \
connections break: a stream ends without the last event, and a request without an answer. No \
other process can take over a connection, so send the request again. The usage records count the \
generated tokens, with the outcome `interrupted`. Connections that were not accepted yet wait for \
the next process. [Deployment](guides/deployment.md#restarts-and-what-clients-notice) has what \
clients notice of restarts.
"""
_NULL: Final = "null"
_TRY_LATER: Final = "Send the request again after `Retry-After`."
# The remedy for each code.
_HINTS: Final[Mapping[str, str]] = {
    "invalid_value": "Change the field that `param` names, as the message says.",
    "missing_required_parameter": "Send the field that `param` names.",
    "unsupported_parameter": "Leave the field out, or use what the message names instead.",
    "unknown_parameter": "Leave the field out, or correct its name.",
    "upgrade_required": "Send the request by HTTP, without a WebSocket.",
    "conversation_locked": "Send the request again when the other response has ended.",
    "previous_response_not_found": "Send the whole history in `input`, or the id of a response "
    "that is stored.",
    "previous_response_not_continuable": "Do what the message says, or send the whole history in "
    "`input`.",
    "request_quarantined": "Change the request. An administrator can release it: "
    "`vinery quarantine`.",
    "invalid_grammar": "Correct or simplify the schema, pattern or grammar. In a schema, `param` "
    "names the keyword.",
    "context_length_exceeded": "Shorten the prompt, ask for fewer tokens, or let the server "
    "shorten it: `truncation`, `truncate_prompt_tokens`.",
    "media_denied": "Use a URL that the media rules allow, send the file as a data URL, or ask an "
    "administrator for a rule.",
    "media_not_fetched": "Check that the server can reach the URL, or send the file as a data URL.",
    "invalid_api_key": "Send a whole, valid key as `Authorization: Bearer KEY`.",
    "permission_denied": "Use another key, or ask for the permission that the message names.",
    "stopped": "Ask the administrator who stopped the request, unless the message has the reason.",
    "not_found": "Correct the URL: a base URL ends in `/v1` or `/v3`. What is stored expires, and "
    "belongs to the project of the key.",
    "model_not_found": "Use a name of `GET /v1/models`.",
    "method_not_allowed": "Use the method in the header `Allow`.",
    "request_too_large": "Send less, such as smaller files; `VINERY_MAX_BODY_MB` is the limit.",
    "unsupported_media_type": "Send `Content-Type: application/json`.",
    "rate_limit_exceeded": "Wait as long as the headers say.",
    "too_many_bodies": "Send fewer large requests at once.",
    "engine_error": "Send the request again. If the failure repeats, the log has the reason under "
    "the id of `x-request-id`.",
    "engine_lost": "Send the request again. A request that is alone at fault gets "
    "`request_quarantined`.",
    "not_continued": "Send the request again.",
    "deadline_exceeded": "Ask for fewer tokens, or ask the administrator for more time.",
    "unavailable": _TRY_LATER,
    "overloaded": _TRY_LATER,
    "model_not_ready": _TRY_LATER,
    "shutting_down": _TRY_LATER,
    "usage_not_recorded": "An administrator must free space on the disk.",
    "invalid_json": "Send one JSON object in UTF-8; the message has the place of the error.",
    "insufficient_quota": "Wait until the quota resets, or ask for a larger one.",
    _NULL: "Send the request again. The log has the reason under the id of `x-request-id`.",
}
# Errors that are no classes of their own: status, type, code and meaning.
_WITHOUT_A_CLASS: Final = (
    (400, "invalid_request_error", "invalid_json", "The body is no JSON object that can be read."),
    (
        400,
        "invalid_request_error",
        "previous_response_not_found",
        "The response was not stored, was deleted, or has expired.",
    ),
    (
        400,
        "invalid_request_error",
        "previous_response_not_continuable",
        "The response has not ended, did not end well, or belongs to a conversation.",
    ),
    (429, "insufficient_quota", "insufficient_quota", "A quota is used up: the message names it."),
    (500, "server_error", _NULL, "An unexpected error."),
)


def errors_page() -> str:
    sections = ("## All codes\n", _codes(), "## Answers that are interrupted\n", _INTERRUPTED)
    return "\n".join((_INTRODUCTION, *sections))


def _codes() -> str:
    rows = {(kind.status, kind.type, kind.code or _NULL): _meaning(kind) for kind in _kinds()}
    rows |= {(status, type_, code_): text for status, type_, code_, text in _WITHOUT_A_CLASS}
    cells = (
        (str(status), code(type_), code(code_), meaning, _HINTS[code_])
        for (status, type_, code_), meaning in sorted(rows.items(), key=lambda row: row[0][0])
    )
    return table(("status", "type", "code", "meaning", "what to do"), cells)


def _meaning(kind: type[ServingError]) -> str:
    return " ".join((kind.__doc__ or "").split("\n\n")[0].split())


def _kinds(root: type[ServingError] = ServingError) -> Iterator[type[ServingError]]:
    """Yield the classes of errors that clients get. Of classes with one code, the root counts."""
    for kind in root.__subclasses__():
        if kind.__module__ not in (errors.__name__, rules.__name__):
            continue
        if kind is not ClientError and kind.code != root.code:
            yield kind
        yield from _kinds(kind)
