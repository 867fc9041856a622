"""`vinery replay`: send a kept request again, with edits, and compare the responses.

Proxies of the environment are ignored and redirects are not followed, so a prompt goes to no other
server than the one that was named.
"""

import argparse
import difflib
import json
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from http.client import HTTPException
from typing import Any, Final, NamedTuple
from urllib.error import URLError
from urllib.request import Request

from vinery_accounts.models import UsageRecord
from vinery_accounts.resources.records import read_texts
from vinery_platform.cli.model import option
from vinery_platform.cli.ready import direct_opener
from vinery_platform.cli.records import capture_of, notices
from vinery_platform.cli.resource import set_run
from vinery_platform.cli.shape import Failure, json_of, table
from vinery_platform.process.listening import Address

_DESCRIPTION: Final = """\
Send a kept request to the same endpoint again, streamed if it was, and compare the answers.
It is charged to the project of the key that you give, not to the project that kept it.
"""
_EPILOG: Final = """\
The same body gives the same text only with temperature 0 or with a seed. Values are JSON, or else
text; paths have dots:

  vinery replay req_0123 --set temperature=0
  vinery replay req_0123 --set model=other --set messages.0.content='Be brief.'
"""
_ROW_TIMEOUT_S: Final = 5.0
_FIGURES: Final = (
    *("num_prompt_tokens", "num_cached_tokens", "num_output_tokens"),
    *("first_token_ms", "total_ms"),
)


class Response(NamedTuple):
    status: int
    request_id: str
    content: bytes


def add_to(replay: argparse.ArgumentParser) -> None:
    replay.description, replay.epilog = _DESCRIPTION, _EPILOG
    replay.formatter_class = argparse.RawDescriptionHelpFormatter
    set_run(replay, run)
    replay.add_argument("request", metavar="REQUEST_ID", help="of: vinery capture list")
    replay.add_argument(
        "--key",
        help="the key to send; safer in VINERY_API_KEY, which process lists do not show",
    )
    replay.add_argument("--url", help="the server (default: that of VINERY_HOST and VINERY_PORT)")
    replay.add_argument(
        "--set",
        type=option,
        action="append",
        default=[],
        metavar="PATH=VALUE",
        help="another value in the body; may be given several times",
    )
    replay.add_argument(
        "--timeout", type=float, default=600.0, metavar="S", help="seconds (default: %(default)g)"
    )
    replay.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace) -> int:
    """Print a diff. Raises `Failure`."""
    key = arguments.key or os.environ.get("VINERY_API_KEY")
    if not key:
        raise Failure("Give a key in VINERY_API_KEY, or with --key.")
    row = capture_of(arguments.request)
    if row.is_body_cut:
        raise Failure("Only a part of this request's body is kept, so it cannot be sent again.")
    texts = read_texts(row)
    base_url = (arguments.url or Address.from_env().base_url).rstrip("/")
    body = edited(texts.body, arguments.set)
    response = send(f"{base_url}/{row.dialect}/{row.endpoint}", body, key, arguments.timeout)
    old = texts_of(texts.answer)
    if response.status != 200 and "error" not in old:
        raise Failure(error_message(response))
    for notice in notices(row):
        print(f"vinery: {notice}", file=sys.stderr)
    _print_comparison(row.request_id, old, response, as_json=arguments.json)
    return 0


def _print_comparison(
    request_id: str, old: Mapping[str, str], response: Response, *, as_json: bool
) -> None:
    new = texts_of(response.content)
    figures = {
        "kept": _figures(request_id, timeout_s=0.0),
        "now": _figures(response.request_id, timeout_s=_ROW_TIMEOUT_S),
    }
    if as_json:
        document = {
            "request_id": request_id,
            "replay_request_id": response.request_id,
            "is_equal": old == new,
            "kept": {"texts": old, "figures": figures["kept"]},
            "now": {"texts": new, "figures": figures["now"]},
        }
        print(json_of(document))
        return
    if old == new:
        print("The answers are equal:\n" + "\n".join(_lines(new)))
    else:
        names = f"{request_id} (kept)", f"{response.request_id} (now)"
        print(*difflib.unified_diff(_lines(old), _lines(new), *names, lineterm=""), sep="\n")
    print()
    heads = ["", *(name.removeprefix("num_").replace("_", " ").upper() for name in _FIGURES)]
    rows = [[name, *map(_cell, values.values())] for name, values in figures.items()]
    print(table(heads, rows))


def _lines(texts: Mapping[str, str]) -> list[str]:
    """The lines of the texts, with the names of the texts if there are several."""
    return [
        line
        for name, text in texts.items()
        for line in ([f"[{name}]"] if len(texts) > 1 or name == "error" else []) + text.splitlines()
    ]


def _figures(request_id: str, timeout_s: float) -> dict[str, Any]:
    """Tokens and times of the usage record, which is written a moment after the response."""
    deadline = time.monotonic() + timeout_s
    rows = UsageRecord.objects.filter(request_id=request_id).values(*_FIGURES)
    while (row := rows.first()) is None and time.monotonic() < deadline:
        time.sleep(0.1)
        rows = rows.all()
    return dict(row) if row else dict.fromkeys(_FIGURES)


def _cell(value: object) -> str:
    return "-" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


# -- The request and its response


def edited(body: bytes, edits: Sequence[tuple[str, Any]]) -> bytes:
    """The body with these values at these dotted paths. Raises `Failure` for an unknown path."""
    if not edits:
        return body
    try:
        document = json.loads(body)
    except ValueError:
        raise Failure("The body is not JSON, so no value in it can be set.") from None
    for path, value in edits:
        _put(document, path, value)
    return json.dumps(document, ensure_ascii=False).encode("utf-8", "replace")


def _put(node: Any, path: str, value: Any) -> None:
    *parents, last = path.split(".")
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
        raise Failure(f"{path} does not exist: the value before {name} has no parts.")
    if not name.isdecimal() or int(name) >= len(node):
        raise Failure(f"{path} does not exist: {name} must be a number below {len(node)}.")
    return node[int(name)]


def send(url: str, body: bytes, key: str, timeout_s: float) -> Response:
    """The whole response of any status. Raises `Failure` without a response."""
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    try:
        with direct_opener().open(Request(url, body, headers), timeout=timeout_s) as answer:
            request_id = answer.headers.get("x-request-id", "")
            return Response(answer.status, request_id, answer.read())
    except (OSError, HTTPException, ValueError) as error:
        reason = error.reason if isinstance(error, URLError) else error
        raise Failure(f"{url} does not answer: {reason}") from None


def error_message(response: Response) -> str:
    """The server's error message, and what to change."""
    try:
        error = json.loads(response.content)["error"]
        code, message = error.get("code") or error["type"], error["message"]
    except (ValueError, TypeError, LookupError, AttributeError):
        return f"The response has status {response.status}, and is not from a Vinery server."
    advice = {
        401: " Give a key with --key or VINERY_API_KEY.",
        404: " Name another model with --set model=NAME.",
        429: " A limit of the key that you replay with refused it.",
    }
    return f"The server refused it ({response.status}, {code}): {message}" + advice.get(
        response.status, ""
    )


# -- The texts of a response, of all four protocols

_FINAL_RESPONSES = ("response.completed", "response.incomplete", "response.failed")
NamedText = tuple[str, str]  # the name of a text, and a part of the text


def texts_of(answer: bytes) -> dict[str, str]:
    """The texts of a body or stream by names such as `choice 0`, without unreadable parts."""
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
        yield from _of_message(each)
        for choice in each.get("choices", ()):
            yield from _of_choice(choice)
        for at, item in enumerate(each.get("output", ())):
            yield from _of_item(f"item {at}", item)
        if isinstance(each.get("delta"), str):  # a stream without its final event
            yield f"item {each.get('output_index', 0)}", each["delta"]


def _of_message(document: Mapping[str, Any]) -> Iterator[NamedText]:
    """Of Anthropic's protocol: a message, or the start or a part of a block."""
    match document:
        case {"type": "message", "content": list(blocks)}:
            for at, block in enumerate(blocks):
                yield from _of_block(at, block)
        case {"type": "content_block_start", "content_block": {"type": "tool_use"} as block}:
            yield f"block {document.get('index', 0)}", f"{block['name']} "
        case {"type": "content_block_delta", "delta": Mapping() as delta}:
            yield from _of_block(document.get("index", 0), delta)


def _of_block(at: int, block: Mapping[str, Any]) -> Iterator[NamedText]:
    match block:
        case {"thinking": str(text)}:
            yield f"block {at}, reasoning", text
        case {"text": str(text)} | {"partial_json": str(text)}:
            yield f"block {at}", text
        case {"type": "tool_use", "name": name, "input": arguments}:
            text = json.dumps(arguments, ensure_ascii=False, separators=(",", ":"))
            yield f"block {at}", f"{name} {text}"


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
