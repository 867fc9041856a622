"""Sending a kept request again with edits, and the texts of its response for a comparison.

Proxies of the environment are ignored and redirects are not followed, so a prompt goes to no other
server than the one that was named.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from http.client import HTTPException
from typing import Any, NamedTuple
from urllib.error import URLError
from urllib.request import HTTPErrorProcessor, ProxyHandler, Request, build_opener


class CannotReplay(Exception):
    """The request was not sent, or got no response. The message names the reason."""


class Response(NamedTuple):
    """The response to a replayed request."""

    status: int
    request_id: str
    content: bytes


def edited(body: bytes, edits: Sequence[tuple[str, Any]]) -> bytes:
    """The body with these values at these dotted paths.

    Raises `CannotReplay` for a path that does not exist.
    """
    if not edits:
        return body
    try:
        document = json.loads(body)
    except ValueError:
        raise CannotReplay("The body is not JSON, so no value in it can be set.") from None
    for path, value in edits:
        _put(document, path, value)
    return json.dumps(document, ensure_ascii=False).encode("utf-8", "replace")


def _put(document: Any, path: str, value: Any) -> None:
    *parents, last = path.split(".")
    node = document
    for name in parents:
        # Missing objects are created, so that `response_format.type` can be set.
        node = node.setdefault(name, {}) if isinstance(node, dict) else _item(node, name, path)
    if isinstance(node, dict):
        node[last] = value
    else:
        _item(node, last, path)
        node[int(last)] = value


def _item(node: Any, name: str, path: str) -> Any:
    if not isinstance(node, list):
        raise CannotReplay(f"{path} does not exist: the value before {name} has no parts.")
    if not name.isdecimal() or int(name) >= len(node):
        raise CannotReplay(f"{path} does not exist: {name} must be a number below {len(node)}.")
    return node[int(name)]


class _AnyStatus(HTTPErrorProcessor):
    """Returns responses of any status as they are, also redirects."""

    def http_response(self, request: Request, response: Any) -> Any:
        return response

    https_response = http_response


def send(url: str, body: bytes, key: str, timeout_s: float) -> Response:
    """Send the body and return the whole response of any status.

    Raises `CannotReplay` without a response.
    """
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    opener = build_opener(ProxyHandler({}), _AnyStatus)
    try:
        with opener.open(Request(url, body, headers), timeout=timeout_s) as answer:
            request_id = answer.headers.get("x-request-id", "")
            return Response(answer.status, request_id, answer.read())
    except (OSError, HTTPException, ValueError) as error:
        reason = error.reason if isinstance(error, URLError) else error
        raise CannotReplay(f"{url} does not answer: {reason}") from None


def error_message(response: Response) -> str:
    """The server's error message, and what to change."""
    try:
        error = json.loads(response.content)["error"]
        code, message = error["code"], error["message"]
    except (ValueError, TypeError, LookupError):
        return f"The response has status {response.status}, and is not from a Vinery server."
    advice = {
        401: " Give a key with --key or VINERY_API_KEY.",
        404: " Name another model with --set model=NAME.",
        429: " A limit of the key that you replay with refused it.",
    }
    return f"The server refused it ({response.status}, {code}): {message}" + advice.get(
        response.status, ""
    )


# -- The texts of a response, of all three protocols

_FINAL_RESPONSES = ("response.completed", "response.incomplete", "response.failed")
NamedText = tuple[str, str]
"""The name of a text, and a part of the text."""


def texts_of(answer: bytes) -> dict[str, str]:
    """The texts of a response body or stream by names such as `choice 0`.

    Parts that cannot be read are left out.
    """
    texts: dict[str, str] = {}
    for name, part in _texts(list(_documents(answer))):
        texts[name] = texts.get(name, "") + part
    return {name: text for name, text in texts.items() if text}


def _documents(answer: bytes) -> Iterator[dict[str, Any]]:
    """The JSON object of a body, or those of a stream's events."""
    lines = answer.split(b"\n")
    data = [line[6:] for line in lines if line.startswith(b"data: ")]
    for each in data or [answer]:
        try:
            document = json.loads(each)
        except ValueError:  # `[DONE]`, or an event that is cut
            continue
        if isinstance(document, dict):
            yield document


def _texts(documents: list[dict[str, Any]]) -> Iterator[NamedText]:
    wholes = [each["response"] for each in documents if each.get("type") in _FINAL_RESPONSES]
    if wholes:  # the final event repeats the texts of all before
        documents = wholes[-1:]
    for each in documents:
        error = each.get("error")
        if isinstance(error, Mapping) or each.get("type") == "error":
            yield "error", str((error or each).get("message"))
        for choice in each.get("choices", ()):
            yield from _of_choice(choice)
        for at, item in enumerate(each.get("output", ())):
            yield from _of_item(f"item {at}", item)
        if isinstance(each.get("delta"), str):  # a stream without its final event
            yield f"item {each.get('output_index', 0)}", each["delta"]


def _of_choice(choice: Mapping[str, Any]) -> Iterator[NamedText]:
    name = f"choice {choice.get('index', 0)}"
    content = choice.get("delta") or choice.get("message") or choice
    yield f"{name}, reasoning", content.get("reasoning_content") or ""
    yield name, content.get("content") or content.get("text") or content.get("refusal") or ""
    for at, call in enumerate(content.get("tool_calls") or ()):
        yield (
            f"{name}, call {call.get('index', at)}",
            _tool_call(call.get(call.get("type")) or call),
        )


def _tool_call(call: Mapping[str, Any]) -> str:
    """A tool call or a part of one: its name, then its arguments."""
    function = call.get("function") or call.get("custom") or call
    name = f"{function['name']} " if function.get("name") else ""
    return name + (function.get("arguments") or function.get("input") or "")


def _of_item(name: str, item: Mapping[str, Any]) -> Iterator[NamedText]:
    match item.get("type"):
        case "function_call" | "custom_tool_call":
            yield name, _tool_call(item)
        case "reasoning":
            for part in item.get("summary", ()):
                yield f"{name}, reasoning", part.get("text") or ""
        case _:
            for part in item.get("content", ()):
                yield name, part.get("text") or part.get("refusal") or ""
