"""Redacts bodies and answers: JSON, or a stream of JSON events.

Texts are searched as clients read them: with escapes decoded, and with the deltas of a stream
joined. Texts in another form, token by token, and documents that are not JSON cannot be searched,
and are removed.
"""

import json
from collections.abc import Iterator
from heapq import merge
from typing import Any, Final

from vinery_accounts.base.redaction import Redactor

# Lists and objects with these names contain text as tokens.
_IN_TOKENS: Final = frozenset(
    {"logprobs", "prompt_logprobs", "token_logprobs", "top_logprobs", "tokens", "token_ids"}
    | {"prompt_token_ids", "completion_token_ids"}
)
_MAYBE_IN_TOKENS: Final = frozenset({"prompt", "input", "content"})
# Fields that identify the text streams of one Responses answer, or of a message.
_MARKS: Final = ("type", "item_id", "output_index", "content_index", "summary_index", "index")

_Field = tuple[dict[str, Any], str]


def redacted(document: bytes, redactor: Redactor, *, is_cut: bool) -> tuple[bytes, bool] | None:
    """Return the redacted document and whether anything was removed; None if it is not JSON."""
    if document.startswith((b"data:", b"event:", b":")):
        return _stream(document, redactor, is_cut=is_cut)
    value = _read(document)
    if value is None:
        return None
    clean = _redacted_value(value, redactor)
    return _written(clean), clean != value


def _stream(document: bytes, redactor: Redactor, *, is_cut: bool) -> tuple[bytes, bool]:
    frames = list(_frames(document))
    runs: dict[tuple[object, ...], list[_Field]] = {}
    before = _joined(frames)
    for _, event in frames:
        if isinstance(event, dict):
            _gather(event, tuple(event.get(mark) for mark in _MARKS), runs)
    for fields in runs.values():
        deltas = redactor.parts([holder[name] for holder, name in fields], is_truncated=is_cut)
        for (holder, name), delta in zip(fields, deltas, strict=True):
            holder[name] = delta
    after = _joined([(head, _redacted_value(event, redactor)) for head, event in frames])
    return after, after != before


def _frames(document: bytes) -> Iterator[tuple[bytes, Any]]:
    for frame in document.split(b"\n\n"):
        head, mark, data = frame.rpartition(b"data: ")
        if mark and data == b"[DONE]":
            yield head, None
        elif mark and (event := _read(data)) is not None:
            yield head, event


def _joined(frames: list[tuple[bytes, Any]]) -> bytes:
    return b"".join(
        head + b"data: " + (b"[DONE]" if event is None else _written(event)) + b"\n\n"
        for head, event in frames
    )


def _gather(
    value: Any, channel: tuple[object, ...], runs: dict[tuple[object, ...], list[_Field]]
) -> None:
    match value:
        case dict():
            for name, inner in value.items():
                if isinstance(inner, str):
                    if name == "delta" or "choices" in channel or _is_of_block(name, channel):
                        runs.setdefault((*channel, name), []).append((value, name))
                else:
                    _gather(inner, (*channel, name), runs)
        case list():
            for at, inner in enumerate(value):
                number = inner.get("index", at) if isinstance(inner, dict) else at
                _gather(inner, (*channel, str(number)), runs)


def _is_of_block(name: str, channel: tuple[object, ...]) -> bool:
    return "delta" in channel and name != "type"


def _redacted_value(value: Any, redactor: Redactor) -> Any:
    match value:
        case str():
            return redactor.text(value)
        case bool() | None:
            return value
        case int() | float():
            return redactor.number(value)
        case list():
            return [_redacted_value(inner, redactor) for inner in value]
        case dict():
            return {
                redactor.text(name): None
                if _is_in_tokens(name, inner)
                else _redacted_value(inner, redactor)
                for name, inner in value.items()
            }
    return value


def _is_in_tokens(name: str, value: Any) -> bool:
    if name in _IN_TOKENS:
        return isinstance(value, list | dict) and bool(value)
    if name not in _MAYBE_IN_TOKENS or not isinstance(value, list):
        return False
    return any(
        isinstance(each, int) or (isinstance(each, list) and any(isinstance(x, int) for x in each))
        for each in value
    )


def _read(document: bytes) -> Any:
    try:
        return json.loads(document)
    except (ValueError, RecursionError):
        return None


def _written(value: Any) -> bytes:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "replace")  # half a surrogate pair is not valid UTF-8


# -- Files of requests


# Before the base64 of a data URL, and the name of a field that may have base64 alone.
_DATA_URL: Final = b";base64,"
_FIELD: Final = b'"file_data"'
# Shorter texts stay: they may be no files.
_LEAST_CHARS: Final = 512


def without_files(body: bytes, max_bytes: int) -> tuple[bytes, int]:
    """Replace the base64 of each file in a JSON body by its number of characters. Return at most
    `max_bytes` of the result, and the number of bytes of the whole."""
    parts: list[bytes] = []
    at = num_bytes = 0
    for start in merge(_after(body, _DATA_URL), _starts_of_fields(body)):
        end = body.find(b'"', start)
        end = len(body) if end < 0 else end
        if start < at or end - start < _LEAST_CHARS:
            continue
        left_out = b"[%d characters of a file]" % (end - start)
        if num_bytes < max_bytes:
            parts += body[at : min(start, at + max_bytes)], left_out
        num_bytes += start - at + len(left_out)
        at = end
    parts.append(body[at : at + max_bytes] if num_bytes < max_bytes else b"")
    return b"".join(parts)[:max_bytes], num_bytes + len(body) - at


def _after(body: bytes, mark: bytes) -> Iterator[int]:
    """Yield the index after each mark. A search costs about a second for 2 GB."""
    at = 0
    while (at := body.find(mark, at)) >= 0:
        at += len(mark)
        yield at


def _starts_of_fields(body: bytes) -> Iterator[int]:
    for after in _after(body, _FIELD):
        if quote := body.find(b'"', after) + 1:
            yield quote
