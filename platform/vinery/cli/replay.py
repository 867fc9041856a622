"""`vinery replay`: a kept request once more, perhaps with edits, beside what it was answered."""

from __future__ import annotations

import argparse
import difflib
import os
import sys
import time
from collections.abc import Mapping
from typing import Any, Final

from vinery.answers import texts_of
from vinery.cli.capture import capture_of, notices, read_texts
from vinery.cli.model import option
from vinery.cli.shape import Commands, Failure, json_of, start_django, table
from vinery.listening import Address
from vinery.replaying import Answered, CannotReplay, complaint, edited, send

_DESCRIPTION: Final = """\
Send a kept request to the same endpoint again, streamed if it was, and compare the answers.
It is charged to the project of the key that you give, and not to the one that kept it.
"""
_EPILOG: Final = """\
The same body gives the same text only where the model has no choice: with temperature 0, or with
the seed that the body has. Values are JSON, and text where they are not; paths have dots:

  vinery replay req_0123 --set temperature=0
  vinery replay req_0123 --set model=other --set messages.0.content='Be brief.'
"""
_ROW_TIMEOUT_S: Final = 5.0
_FIGURES: Final = (
    *("num_prompt_tokens", "num_cached_tokens", "num_output_tokens"),
    *("first_token_ms", "total_ms"),
)


def add_to(commands: Commands) -> None:
    """Add `vinery replay`."""
    replay = commands.add_parser(
        "replay",
        help="send a kept request again, and compare",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    replay.add_argument("request", metavar="REQUEST_ID", help="of: vinery capture list")
    replay.add_argument(
        "--key",
        help="whose project pays; better in VINERY_API_KEY, which process lists do not show",
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
    replay.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print a diff. Raises `Failure`."""
    key = arguments.key or os.environ.get("VINERY_API_KEY")
    if not key:
        raise Failure("Whose key? Give it in VINERY_API_KEY, or with --key.")
    start_django()
    row = capture_of(arguments.request)
    if row.is_body_cut:
        raise Failure("The body of this request is not kept whole, so it cannot be sent again.")
    texts = read_texts(row)
    base_url = (arguments.url or Address.from_env().base_url).rstrip("/")
    try:
        body = edited(texts.body, arguments.set)
        answered = send(f"{base_url}/{row.dialect}/{row.endpoint}", body, key, arguments.timeout)
    except CannotReplay as error:
        raise Failure(str(error)) from None
    was = texts_of(texts.answer)
    if answered.status != 200 and "error" not in was:
        raise Failure(complaint(answered))
    for notice in notices(row):
        print(f"vinery: {notice}", file=sys.stderr)
    _tell(row.request_id, was, answered, as_json=arguments.json)
    return 0


def _tell(request_id: str, was: Mapping[str, str], answered: Answered, *, as_json: bool) -> None:
    now = texts_of(answered.content)
    figures = {
        "kept": _figures(request_id, timeout_s=0.0),
        "now": _figures(answered.request_id, timeout_s=_ROW_TIMEOUT_S),
    }
    if as_json:
        told = {
            "request_id": request_id,
            "replay_request_id": answered.request_id,
            "is_equal": was == now,
            "kept": {"texts": was, "figures": figures["kept"]},
            "now": {"texts": now, "figures": figures["now"]},
        }
        print(json_of(told))
        return
    print(_diff(request_id, was, answered.request_id, now))
    print()
    heads = ["", *(name.removeprefix("num_").replace("_", " ").upper() for name in _FIGURES)]
    rows = [[name, *map(_cell, of.values())] for name, of in figures.items()]
    print(table(heads, rows))


def _diff(old_id: str, old: Mapping[str, str], new_id: str, new: Mapping[str, str]) -> str:
    if old == new:
        return "The answers are equal:\n" + "\n".join(_lines(new))
    names = f"{old_id} (kept)", f"{new_id} (now)"
    return "\n".join(difflib.unified_diff(_lines(old), _lines(new), *names, lineterm=""))


def _lines(texts: Mapping[str, str]) -> list[str]:
    """With the names of the texts where there are several."""
    return [
        line
        for name, text in texts.items()
        for line in ([f"[{name}]"] if len(texts) > 1 or name == "error" else []) + text.splitlines()
    ]


def _figures(request_id: str, timeout_s: float) -> dict[str, Any]:
    """Tokens and times from the books, which are written a moment after the answer."""
    from accounts.models import UsageRecord

    deadline = time.monotonic() + timeout_s
    rows = UsageRecord.objects.filter(request_id=request_id).values(*_FIGURES)
    while (row := rows.first()) is None and time.monotonic() < deadline:
        time.sleep(0.1)
        rows = rows.all()
    return dict(row) if row else dict.fromkeys(_FIGURES)


def _cell(value: object) -> str:
    return "-" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
