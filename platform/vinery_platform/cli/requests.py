"""`vinery requests`: the requests that run now on this host."""

import argparse

from django.http import Http404

from vinery_accounts.resources.base import EVERYTHING
from vinery_platform.cli.shape import Failure, add_command, add_json, print_rows, subcommands
from vinery_serving.models import live_requests

_HEADS = ("request_id", "since", "state", "user", "key", "model", "tokens", "tokens_per_s")


def add_requests(parser: argparse.ArgumentParser) -> None:
    actions = subcommands(parser)
    add_json(add_command(actions, "live", show_live))
    to_stop = add_command(actions, "stop", stop)
    to_stop.add_argument("id", metavar="REQUEST_ID", help="from `requests live`")
    to_stop.add_argument("--reason", metavar="TEXT", default="", help="the client reads it")


def show_live(arguments: argparse.Namespace) -> int:
    """List the requests that run now, the oldest first."""
    found = live_requests.live_rows(EVERYTHING)
    rows = [
        {
            **live_requests.LiveRequestSerializer(row).data,
            "since": row.admission.started_at,
            "user": row.admission.username,
            "key": row.admission.key_name,
            "tokens": row.num_output_tokens,
            "tokens_per_s": row.tokens_per_s and round(row.tokens_per_s, 1),
        }
        for row in found
    ]
    print_rows(rows, _HEADS, as_json=arguments.json)
    return 0


def stop(arguments: argparse.Namespace) -> str:
    """Stop a request. Its client gets the error `stopped` with the reason."""
    if len(arguments.reason) > live_requests.MAX_REASON:
        raise Failure(f"The reason may have at most {live_requests.MAX_REASON} characters.")
    try:
        live_requests.stop(EVERYTHING, arguments.id, arguments.reason)
    except Http404 as error:
        raise Failure(str(error)) from None
    return f"{arguments.id} is stopped."
