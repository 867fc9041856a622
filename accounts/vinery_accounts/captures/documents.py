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


# A longer string that can be base64 is taken for a file.
_LEAST_CHARS: Final = 512
# A text goes on behind a shorter file; the end of a longer one is the end of the string.
_MOST_IN_TEXT: Final = 1024 * 1024
# Base64 as it stands in JSON: with escapes, with percent signs in URLs, in lines.
_DIGIT: Final = rb"[A-Za-z0-9+/=_%\r\n\t-]"
_ESCAPED_DIGIT: Final = rb"\\(?=[/nrt]|u00[2-7])"
_BEGINNING: Final = re.compile(
    rb"(?P<string>(?<![^\"])[^\"]{%d})|(?<!%b)(?:%b|%b){%d}"
    % (_LEAST_CHARS, _DIGIT, _DIGIT, _ESCAPED_DIGIT, _LEAST_CHARS)
)
_REST: Final = re.compile(rb"(?:%b++|%b)*+" % (_DIGIT, _ESCAPED_DIGIT))
_DATA_URL: Final = re.compile(r"\s*data:\s*(?:[^\s,;/]+/[^\s,;/]+)?\s*(?:;[^,]*)?,", re.IGNORECASE)
_BASE64: Final = re.compile(r"[\w+/=%\s\\-]*", re.ASCII)
_WORD: Final = re.compile(r"[A-Z]?[a-z]{0,31}|[A-Z]{1,32}|[0-9]{1,32}")
_ESCAPE: Final = re.compile(r"\\(?:u([0-9a-fA-F]{4})|([^u]))")


def without_files(body: bytes, max_bytes: int) -> tuple[bytes, int]:
    """Replace each data URL and each base64 in a JSON body by its number of characters. Return at
    most `max_bytes` of the result, and the number of bytes of the whole; files behind the result
    count in full. What stands between two quotes is a string, so damaged JSON keeps no file either.
    The time depends on `max_bytes`, because the end of a file is the next quote."""
    parts: list[bytes] = []
    at = num_bytes = 0
    while num_bytes < max_bytes and at < len(body):
        stop = min(at + max_bytes - num_bytes, len(body))
        start, end = _next_file(body, at, stop) or (stop, stop)
        left_out = b"[%d characters of a file]" % (end - start) if start < end else b""
        parts += body[at:start], left_out
        num_bytes += start - at + len(left_out)
        at = end
    return b"".join(parts)[:max_bytes], num_bytes + len(body) - at


def _next_file(body: bytes, at: int, stop: int) -> tuple[int, int] | None:
    """Where the first file between `at` and `stop` begins, and where this file ends."""
    while found := _BEGINNING.search(body, at, stop + _LEAST_CHARS):
        start = found.start()
        num_head: int | None = 0
        if found["string"] is not None:
            num_head = _head_of_file(found["string"])
        elif (rest := _REST.match(body, start, start + _MOST_IN_TEXT)) and (
            rest.end() < start + _MOST_IN_TEXT
        ):
            return start, rest.end()
        if num_head is not None:
            end = body.find(b'"', start)
            return start + num_head, end if end >= 0 else len(body)
        at = start + 1
    return None


def _head_of_file(beginning: bytes) -> int | None:
    """The length of what stands before the data of a file; None if the string is a text."""
    text = _ESCAPE.sub(_unescaped, beginning.decode("utf-8", "replace"))
    if _DATA_URL.match(text):
        return beginning.find(b",") + 1  # 0 if it is escaped
    return 0 if _BASE64.fullmatch(text) and not _is_prose(text.split()) else None


def _unescaped(escape: re.Match[str]) -> str:
    number, letter = escape.groups()
    if number:
        return chr(int(number, 16))
    return " " if letter in "bfnrt" else letter


def _is_prose(words: list[str]) -> bool:
    """Whether base64 is a text without punctuation. The last word may be cut."""
    num_chars = sum(map(len, words))
    return num_chars > 2 * len(words) and all(map(_WORD.fullmatch, words))
