"""`vinery capture`: captured texts of requests."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from accounts.captures.encrypted import Texts
from accounts.models import Capture, Project
from accounts.resources import captures
from accounts.resources.base import EVERYTHING
from accounts.resources.captures import CAPTURES
from vinery.cli import resource
from vinery.cli.find import project_named
from vinery.cli.shape import Commands, Failure, add_json, json_of

_REQUEST = ("request", "REQUEST_ID", "the x-request-id of its response")


def add_to(commands: Commands) -> None:
    """Add `vinery capture` and its commands."""
    actions = resource.add_group(commands, "capture", "see and delete captured texts of requests")
    resource.add_list(
        actions,
        CAPTURES,
        "List captured requests, the newest first, without their texts. What a project captures "
        "is set with: vinery project change NAME --capture-hours N",
        {"--project": ("project_id", lambda name: project_named(name).pk)},
        has_num=True,
        extra=_projects,
    )
    show = resource.add_command(
        actions,
        "show",
        show_texts,
        "Print the request and the response of a captured request. This writes an entry of the "
        "audit log.",
    )
    show.add_argument(_REQUEST[0], metavar=_REQUEST[1], help=_REQUEST[2])
    add_json(show)
    resource.add_remove(
        actions,
        CAPTURES,
        capture_of,
        "Delete a captured request now.",
        name="delete",
        argument=_REQUEST,
        done=lambda row: f"{row.request_id} is deleted.",
    )


def show_texts(arguments: argparse.Namespace) -> int:
    """Print both texts. Raises `Failure`."""
    row = capture_of(arguments.request)
    texts = read_texts(row)
    body, answer = (text.decode("utf-8", "replace") for text in (texts.body, texts.answer))
    if arguments.json:
        columns = {
            "created": row.created_at,
            "expires": row.expires_at,
            "body_cut": row.is_body_cut,
            "answer_cut": row.is_answer_cut,
            "redacted": row.is_redacted,
        }
        known = CAPTURES.body(EVERYTHING, row)
        path = f"{row.dialect}/{row.endpoint}"
        print(json_of({**known, **columns, "endpoint": path, "body": body, "answer": answer}))
        return 0
    for notice in notices(row):
        print(f"vinery: {notice}", file=sys.stderr)
    print(body, answer, sep="\n\n")
    return 0


def capture_of(request_id: str) -> Capture:
    """Return the capture of a request. Raises `Failure` where there is none."""
    row = Capture.objects.filter(request_id=request_id).first()
    if row is None:
        raise Failure(
            f"There is no capture of {request_id}: its project captured no texts then, or they "
            "have expired. See: vinery capture list"
        )
    return row


def read_texts(row: Capture) -> Texts:
    """Return the texts, and write an entry of the audit log. Raises `Failure`."""
    with resource.failures():
        return captures.read_texts(row)


def notices(row: Capture) -> list[str]:
    """Return a text for each thing that is missing from the captured texts."""
    known = {
        "Parts of the texts were redacted before they were stored.": row.is_redacted,
        "The request is not stored completely.": row.is_body_cut,
        "The response is not stored completely.": row.is_answer_cut,
    }
    return [notice for notice, holds in known.items() if holds]


def _projects(rows: Sequence[Capture]) -> list[dict[str, object]]:
    projects = Project.objects.select_related("organization")
    names = projects.in_bulk({each.project_id for each in rows})
    return [
        {
            "project": str(names.get(each.project_id, "")),
            "body_cut": each.is_body_cut,
            "answer_cut": each.is_answer_cut,
        }
        for each in rows
    ]
