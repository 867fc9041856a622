"""`vinery limit`: how much may be used, by whom, in which time."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from vinery.cli.shape import (
    Commands,
    Failure,
    add_json,
    print_rows,
    refusals,
    say,
    start_django,
)

if TYPE_CHECKING:
    from accounts.models import Limit

METRICS = (
    *("requests", "tokens", "input_tokens", "output_tokens", "concurrency", "weighted_tokens"),
)
SCOPES = ("platform", "model", "organization", "project", "user", "key")
_WEEKDAYS = (*("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"),)
_VALUES = ("amount", "time_zone", "week_start", "is_shadow", "alert_at")
_QUOTAS = (
    *("id", "scope", "whose", "metric", "window", "amount", "used", "left", "resets"),
    *("runs_out", "shadow"),
)
_HEADS = ("id", "scope", "whose", "metric", "window", "amount", "time_zone", "week_start", "shadow")


def add_to(commands: Commands) -> None:
    """Add `vinery limit` and what is under it."""
    limit = commands.add_parser("limit", help="set, list and remove limits and quotas")
    actions = limit.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _add_set(actions)
    show = actions.add_parser("list", help="list all limits", description="List all limits.")
    add_json(show)
    show.set_defaults(run=list_limits)
    quotas = actions.add_parser(
        "quotas",
        help="show what is left of quotas, and when they run out",
        description="List limits of a day, a week, a month and for ever with what is used and "
        "left, when they begin anew, and when they run out at the pace of late.",
    )
    add_json(quotas)
    quotas.set_defaults(run=list_quotas)
    gone = actions.add_parser("remove", help="remove a limit", description="Remove a limit.")
    gone.add_argument("id", type=int, metavar="ID", help="from `limit list`")
    gone.set_defaults(run=remove)


def _add_set(actions: Commands) -> None:
    put = actions.add_parser(
        "set",
        help="set a limit, in place of one of the same kind",
        description="Set a limit, in place of one for the same scope, metric and window, of which "
        "what is not named stays. All limits that concern a request hold together.",
        epilog="for example:  vinery limit set --project search --metric tokens --window day "
        "--amount 1000000 --time-zone Europe/Berlin",
    )
    _add_kind(put)
    put.add_argument("--amount", required=True, type=int, help="how much of it, at most")
    _add_details(put)
    put.set_defaults(run=set_limit)


def _add_kind(put: argparse.ArgumentParser) -> None:
    """For whom, of what and in which time: a limit is known by these."""
    scope = put.add_mutually_exclusive_group(required=True)
    scope.add_argument("--platform", action="store_true", help="for everybody together")
    for name, metavar in (
        ("organization", "NAME"),
        ("project", "NAME"),
        ("user", "NAME"),
        ("key", "ID_OR_HINT"),
        ("model", "NAME"),
    ):
        scope.add_argument(f"--{name}", metavar=metavar, help=f"for this {name}")
    put.add_argument("--metric", required=True, choices=METRICS, help="what is counted")
    put.add_argument(
        "--window",
        choices=("minute", "day", "week", "month", "none"),
        default="none",
        help="in which time; none is for concurrency, and for budgets of weighted tokens "
        "(default: %(default)s)",
    )


def _add_details(put: argparse.ArgumentParser) -> None:
    """What stays as it was where it is not named."""
    put.add_argument(
        "--time-zone",
        default=argparse.SUPPRESS,
        help="in which days, weeks and months begin (default: as it was; UTC for a new limit)",
    )
    put.add_argument(
        "--week-start",
        choices=_WEEKDAYS,
        default=argparse.SUPPRESS,
        help="the first day of a week, for a limit of one (default: as it was; monday for a new "
        "limit)",
    )
    put.add_argument(
        "--shadow",
        dest="is_shadow",
        action=argparse.BooleanOptionalAction,
        default=argparse.SUPPRESS,
        help="refuse nothing, only count what would be refused (default: as it was; a new limit "
        "refuses)",
    )
    put.add_argument(
        "--alert-at",
        metavar="PERCENTS",
        type=_percents,
        default=argparse.SUPPRESS,
        help="percentages of a quota at which people are told, such as 50,80,100; off, or "
        "platform for those of the platform (default: as it was; a new limit has the platform's)",
    )


def set_limit(arguments: argparse.Namespace) -> int:
    """Make or change a limit. Raises `Failure`."""
    start_django()
    from accounts.models import Limit
    from accounts.services import audit, changes

    kind = {**_scope(arguments), "metric": arguments.metric, "window": arguments.window}
    named = vars(arguments)
    values = {name: named[name] for name in _VALUES if name in named}
    with refusals(), audit.writing():
        known = Limit.objects.filter(**kind).first()
        if known is None:
            limit = changes.add(Limit(**kind, **values))
        else:
            limit = changes.change(known, **values)
    say(f"Limit {limit.pk}: {_told(limit)}.")
    return 0


def list_limits(arguments: argparse.Namespace) -> int:
    """Print all limits."""
    start_django()
    from accounts.models import Limit

    limits = list(Limit.objects.all())
    names = _names(limits)
    rows = [
        {
            "id": limit.pk,
            "scope": limit.scope,
            "scope_id": limit.scope_id,
            "whose": _whose(limit, names),
            "metric": limit.metric,
            "window": limit.window,
            "amount": limit.amount,
            "time_zone": limit.time_zone,
            "week_start": limit.week_start,
            "shadow": limit.is_shadow,
            "alert_at": limit.alert_at,
        }
        for limit in limits
    ]
    print_rows(rows, _HEADS, as_json=arguments.json)
    return 0


def list_quotas(arguments: argparse.Namespace) -> int:
    """Print all quotas as they stand in the books."""
    start_django()
    from django.utils import timezone

    from accounts.alerts.quotas import read_quotas
    from accounts.models import Limit

    quotas = read_quotas(Limit.objects.all(), timezone.now())
    names = _names([quota.limit for quota in quotas])
    rows = [
        {
            "id": quota.limit.pk,
            "scope": quota.limit.scope,
            "whose": _whose(quota.limit, names),
            "metric": quota.limit.metric,
            "window": quota.limit.window,
            "amount": quota.limit.amount,
            "used": quota.num_used,
            "left": quota.num_left,
            "since": quota.window_start,
            "resets": quota.resets_at,
            "runs_out": quota.runs_out_at,
            "shadow": quota.limit.is_shadow,
        }
        for quota in quotas
    ]
    print_rows(rows, _QUOTAS, as_json=arguments.json)
    return 0


def remove(arguments: argparse.Namespace) -> int:
    """Remove a limit. Raises `Failure`."""
    start_django()
    from accounts.models import Limit
    from accounts.services import changes

    limit = Limit.objects.filter(pk=arguments.id).first()
    if limit is None:
        raise Failure(f"There is no limit {arguments.id}. See: vinery limit list")
    told = _told(limit)
    changes.remove(limit)
    say(f"Removed: {told}.")
    return 0


def _percents(text: str) -> list[int] | None:
    """Raises ArgumentTypeError."""
    if text == "platform":
        return None
    try:
        return [] if text == "off" else sorted({int(word) for word in text.split(",")})
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is neither percentages like 50,80,100 nor off nor platform"
        ) from None


def _scope(arguments: argparse.Namespace) -> dict[str, Any]:
    from vinery.cli.find import key_named, organization_named, project_named, user_named

    if arguments.platform:
        return {"scope": "platform", "scope_id": 0, "model": ""}
    if arguments.model:
        return {"scope": "model", "scope_id": 0, "model": arguments.model}
    for scope, find in (
        ("organization", organization_named),
        ("project", project_named),
        ("user", user_named),
        ("key", key_named),
    ):
        if word := getattr(arguments, scope):
            return {"scope": scope, "scope_id": find(word).pk, "model": ""}
    raise Failure("Say for whom the limit is.")


def _names(limits: list[Limit]) -> dict[tuple[str, int], str]:
    """Of whom the limits are for: a query for each scope that there is."""
    from accounts.models import ApiKey, Organization, Project, User

    tables: dict[str, Any] = {
        "organization": Organization.objects.all(),
        "project": Project.objects.select_related("organization"),
        "user": User.objects.all(),
        "key": ApiKey.objects.all(),
    }
    names = {}
    for scope, rows in tables.items():
        ids = {limit.scope_id for limit in limits if limit.scope == scope}
        for row in rows.filter(pk__in=ids) if ids else ():
            names[scope, row.pk] = str(row)
    return names


def _told(limit: Limit) -> str:
    return limit.described_for(_whose(limit, _names([limit])))


def _whose(limit: Limit, names: dict[tuple[str, int], str]) -> str:
    return limit.model or names.get((limit.scope, limit.scope_id), str(limit.scope_id or ""))
