"""Redacts bodies and answers: JSON, or a stream of JSON events.

Texts are searched as clients read them: with escapes decoded, and with the deltas of a stream
joined. Texts in another form, token by token, and documents that are not JSON cannot be searched,
and are removed.
"""

import json
import re
from collections.abc import Iterator
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
                    is_of_block = "delta" in channel and name != "type"
                    if name == "delta" or "choices" in channel or is_of_block:
                        runs.setdefault((*channel, name), []).append((value, name))
                else:
                    _gather(inner, (*channel, name), runs)
        case list():
            for at, inner in enumerate(value):
                number = inner.get("index", at) if isinstance(inner, dict) else at
                _gather(inner, (*channel, str(number)), runs)


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

# A longer run of base64 is taken for a file.
_LEAST_CHARS: Final = 512
# A text goes on behind a shorter file; the end of a longer one is the end of the string.
_MOST_IN_TEXT: Final = 1024 * 1024
# Base64 as it stands in JSON: of URLs too, in lines, and with escaped slashes.
_DIGIT: Final = rb"[A-Za-z0-9+/=_%-]"
_RUN: Final = re.compile(rb"(?:%b++|\\[/nrt])*+" % _DIGIT)
_FILE: Final = re.compile(rb"(?<!%b)(?:%b|\\[/nrt]){%d}" % (_DIGIT, _DIGIT, _LEAST_CHARS))


def without_files(body: bytes, max_bytes: int) -> tuple[bytes, int]:
    """Replace each file in a JSON body, whole or damaged, by its number of characters. Return at
    most `max_bytes` of the result, and the number of bytes of the whole; files behind the result
    count in full. The time depends on `max_bytes`, because the end of a file is the next quote."""
    parts: list[bytes] = []
    at = num_bytes = 0
    while num_bytes < max_bytes and at < len(body):
        stop = min(at + max_bytes - num_bytes, len(body))
        found = _FILE.search(body, at, stop + _LEAST_CHARS)
        start, end = (found.start(), _end_of(found)) if found else (stop, stop)
        left_out = b"[%d characters of a file]" % (end - start) if found else b""
        parts += body[at:start], left_out
        num_bytes += start - at + len(left_out)
        at = end
    return b"".join(parts)[:max_bytes], num_bytes + len(body) - at


def _end_of(file: re.Match[bytes]) -> int:
    body, start = file.string, file.start()
    rest = _RUN.match(body, start, start + _MOST_IN_TEXT)
    if rest is not None and rest.end() < start + _MOST_IN_TEXT:
        return rest.end()
    end = body.find(b'"', start)
    return end if end >= 0 else len(body)
