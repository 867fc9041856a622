"""`vinery capture`: captured texts of requests."""

import argparse
import sys
from collections.abc import Sequence

from vinery_accounts.models import Capture, Project
from vinery_accounts.resources.captures import CAPTURES, read_texts
from vinery_platform.cli import resource
from vinery_platform.cli.find import only, option_of
from vinery_platform.cli.resource import RowCommands
from vinery_platform.cli.shape import add_json, json_of, subcommands


def add_to(parser: argparse.ArgumentParser) -> None:
    actions = subcommands(parser)
    resource.add_list(
        actions,
        CAPTURES,
        "List captured requests, the newest first, without their texts. What a project captures "
        "is set with: vinery project change NAME --capture-hours N",
        {"project_id": option_of("project")},
        has_num=True,
        extra=_projects,
    )
    one = RowCommands(
        actions, CAPTURES, capture_of, "request", "REQUEST_ID", "the x-request-id of its response"
    )
    show = one.add(
        "show",
        show_texts,
        "Print the request and the response of a captured request. This writes an entry of the "
        "audit log.",
    )
    add_json(show)
    one.add_remove(
        "Delete a captured request now.",
        name="delete",
        done=lambda row: f"{row.request_id} is deleted.",
    )


def show_texts(row: Capture, arguments: argparse.Namespace) -> int:
    texts = read_texts(row)
    body, answer = (text.decode("utf-8", "replace") for text in (texts.body, texts.answer))
    if arguments.json:
        columns = {
            "created": row.created_at,
            "expires": row.expires_at,
            "redacted": row.is_redacted,
            **_cuts(row),
        }
        known = CAPTURES.serializer(row).data
        path = f"{row.dialect}/{row.endpoint}"
        print(json_of({**known, **columns, "endpoint": path, "body": body, "answer": answer}))
        return 0
    for notice in notices(row):
        print(f"vinery: {notice}", file=sys.stderr)
    print(body, answer, sep="\n\n")
    return 0


def capture_of(request_id: str) -> Capture:
    """Return the capture of a request. Raises `Failure` where there is none."""
    return only(
        Capture.objects.filter(request_id=request_id),
        f"There is no capture of {request_id}: its project captured no texts then, or they have "
        "expired. See: vinery capture list",
    )


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
    return [{"project": str(names.get(each.project_id, "")), **_cuts(each)} for each in rows]


def _cuts(row: Capture) -> dict[str, bool]:
    return {"body_cut": row.is_body_cut, "answer_cut": row.is_answer_cut}
