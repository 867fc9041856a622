"""`vinery quarantine`: requests that ended two engines, and their release."""

import argparse
from typing import Final

from vinery_accounts.models import QuarantinedRequest
from vinery_accounts.resources.quarantine import QUARANTINE
from vinery_platform.cli import resource
from vinery_platform.cli.find import FINDERS, only, options_of
from vinery_platform.cli.resource import Option, RowCommands
from vinery_platform.cli.shape import subcommands

_FILTERS: Final = {
    **{f"{kind}_id": options_of(kind) for kind in FINDERS},
    "request_id": Option("--request", metavar="ID"),
    "model": Option(metavar="NAME"),
}


def add_to(parser: argparse.ArgumentParser) -> None:
    actions = subcommands(parser)
    resource.add_list(
        actions,
        QUARANTINE,
        "List the requests in quarantine, the newest first.",
        _FILTERS,
        has_num=True,
        description="List the requests that ended two engines, the newest first. They are refused "
        "until they expire or are released.",
    )
    one = RowCommands(actions, QUARANTINE, _quarantined, "digest", "DIGEST", "from its list")
    one.add_actions("release")


def _quarantined(digest: str) -> QuarantinedRequest:
    missing = f"Nothing with the digest {digest} is in quarantine. See: vinery quarantine list"
    return only(QuarantinedRequest.objects.filter(digest=digest), missing)
