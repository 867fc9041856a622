"""`vinery capture`: which requests' texts are kept, and what they say."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from vinery.cli.shape import Commands, Failure, add_json, add_num, json_of, print_rows, start_django

if TYPE_CHECKING:
    from accounts.captures.encrypted import Texts
    from accounts.models import Capture

_HEADS = ("created", "request_id", "project", "endpoint", "body", "answer", "redacted", "expires")


def add_to(commands: Commands) -> None:
    """Add `vinery capture` and what is under it."""
    capture = commands.add_parser("capture", help="see and delete kept texts of requests")
    actions = capture.add_subparsers(title="commands", metavar="COMMAND", required=True)
    listing = actions.add_parser(
        "list",
        help="list kept requests",
        description="List requests whose texts are kept, the newest first, without the texts. "
        "Whether a project keeps any is set with: vinery project change NAME --capture-hours N",
    )
    listing.add_argument("--project", metavar="NAME", help="only those of this one")
    add_num(listing)
    add_json(listing)
    listing.set_defaults(run=list_captures)
    show = actions.add_parser(
        "show",
        help="print what was asked and answered",
        description="Print the body and the answer of a kept request. The audit log gets an entry.",
    )
    _add_request(show)
    add_json(show)
    show.set_defaults(run=show_texts)
    delete = actions.add_parser(
        "delete", help="delete a kept request now", description="Delete a kept request now."
    )
    _add_request(delete)
    delete.set_defaults(run=delete_capture)


def list_captures(arguments: argparse.Namespace) -> int:
    """Print what is kept."""
    start_django()
    from accounts.models import Capture, Project
    from vinery.cli.find import project_named

    captures = Capture.objects.defer("sealed")
    if arguments.project:
        captures = captures.filter(project_id=project_named(arguments.project).pk)
    found = list(captures[: arguments.num])
    projects = Project.objects.select_related("organization")
    names = projects.in_bulk({each.project_id for each in found})
    rows = [
        {
            **_told(each),
            "project": str(names.get(each.project_id, "")),
            "body": each.num_body_bytes,
            "answer": each.num_answer_bytes,
        }
        for each in found
    ]
    print_rows(rows, _HEADS, as_json=arguments.json)
    return 0


def show_texts(arguments: argparse.Namespace) -> int:
    """Print both texts. Raises `Failure`."""
    start_django()
    row = capture_of(arguments.request)
    texts = read_texts(row)
    body, answer = (text.decode("utf-8", "replace") for text in (texts.body, texts.answer))
    if arguments.json:
        told = _told(row) | {"body": body, "answer": answer}
        print(json_of(told))
        return 0
    for notice in notices(row):
        print(f"vinery: {notice}", file=sys.stderr)
    print(body, answer, sep="\n\n")
    return 0


def delete_capture(arguments: argparse.Namespace) -> int:
    """Delete one. Raises `Failure`."""
    start_django()
    from accounts.services import changes

    changes.remove(capture_of(arguments.request))
    print(f"{arguments.request} is deleted.")
    return 0


def capture_of(request_id: str) -> Capture:
    """Raises `Failure` when nothing is kept of it."""
    from accounts.models import Capture

    row = Capture.objects.filter(request_id=request_id).first()
    if row is None:
        raise Failure(
            f"Nothing is kept of {request_id}: its project kept no texts then, or their time is "
            "over. See: vinery capture list"
        )
    return row


def read_texts(row: Capture) -> Texts:
    """With an entry in the log. Raises `Failure`."""
    from accounts.captures.encrypted import Unreadable
    from accounts.captures.reading import read

    try:
        return read(row)
    except Unreadable as error:
        raise Failure(str(error)) from None


def notices(row: Capture) -> list[str]:
    """What is missing from the texts."""
    known = {
        "Parts of it were blacked out before it was stored.": row.is_redacted,
        "The body is not kept whole.": row.is_body_cut,
        "The answer is not kept whole.": row.is_answer_cut,
    }
    return [notice for notice, holds in known.items() if holds]


def _add_request(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("request", metavar="REQUEST_ID", help="the x-request-id of its answer")


def _told(row: Capture) -> dict[str, Any]:
    return {
        "request_id": row.request_id,
        "project_id": row.project_id,
        "created": row.created_at,
        "expires": row.expires_at,
        "endpoint": f"{row.dialect}/{row.endpoint}",
        "body_cut": row.is_body_cut,
        "answer_cut": row.is_answer_cut,
        "redacted": row.is_redacted,
    }
