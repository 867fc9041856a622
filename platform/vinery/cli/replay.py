"""`vinery replay`: send a kept request again, with edits, and compare the responses."""

from __future__ import annotations

import argparse
import difflib
import os
import sys
import time
from collections.abc import Mapping
from typing import Any, Final

from accounts.resources.captures import read_texts
from vinery.cli.capture import capture_of, notices
from vinery.cli.model import option
from vinery.cli.resource import set_run
from vinery.cli.shape import Failure, json_of, start_django, table
from vinery.process.listening import Address
from vinery.replay import CannotReplay, Response, edited, error_message, send, texts_of

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


def add_to(replay: argparse.ArgumentParser) -> None:
    """Add the arguments of `vinery replay`."""
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
    start_django()
    row = capture_of(arguments.request)
    if row.is_body_cut:
        raise Failure("Only a part of this request's body is kept, so it cannot be sent again.")
    texts = read_texts(row)
    base_url = (arguments.url or Address.from_env().base_url).rstrip("/")
    try:
        body = edited(texts.body, arguments.set)
        response = send(f"{base_url}/{row.dialect}/{row.endpoint}", body, key, arguments.timeout)
    except CannotReplay as error:
        raise Failure(str(error)) from None
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
    print(_diff(request_id, old, response.request_id, new))
    print()
    heads = ["", *(name.removeprefix("num_").replace("_", " ").upper() for name in _FIGURES)]
    rows = [[name, *map(_cell, values.values())] for name, values in figures.items()]
    print(table(heads, rows))


def _diff(old_id: str, old: Mapping[str, str], new_id: str, new: Mapping[str, str]) -> str:
    if old == new:
        return "The answers are equal:\n" + "\n".join(_lines(new))
    names = f"{old_id} (kept)", f"{new_id} (now)"
    return "\n".join(difflib.unified_diff(_lines(old), _lines(new), *names, lineterm=""))


def _lines(texts: Mapping[str, str]) -> list[str]:
    """The lines of the texts, with the names of the texts if there are several."""
    return [
        line
        for name, text in texts.items()
        for line in ([f"[{name}]"] if len(texts) > 1 or name == "error" else []) + text.splitlines()
    ]


def _figures(request_id: str, timeout_s: float) -> dict[str, Any]:
    """Tokens and times of the usage record, which is written a moment after the response."""
    from accounts.models import UsageRecord

    deadline = time.monotonic() + timeout_s
    rows = UsageRecord.objects.filter(request_id=request_id).values(*_FIGURES)
    while (row := rows.first()) is None and time.monotonic() < deadline:
        time.sleep(0.1)
        rows = rows.all()
    return dict(row) if row else dict.fromkeys(_FIGURES)


def _cell(value: object) -> str:
    return "-" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
