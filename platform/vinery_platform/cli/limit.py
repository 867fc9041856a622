"""`vinery limit`: how much a key, a user, a project and so on may use, in which window."""

import argparse
from collections.abc import Sequence
from typing import Any, Final

from vinery_accounts.models import OWNERS, Limit, Project
from vinery_accounts.resources.limits import LIMITS, QUOTAS
from vinery_platform.cli import resource
from vinery_platform.cli.find import FINDERS, only, project_named
from vinery_platform.cli.resource import Option, RowCommands
from vinery_platform.cli.shape import subcommands


def _percents(text: str) -> list[int] | None:
    if text == "platform":
        return None
    try:
        return [] if text == "off" else sorted({int(word) for word in text.split(",")})
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is neither percentages like 50,80,100 nor off nor platform"
        ) from None


_FIELDS: Final = {
    "metric": Option(help="what is counted", is_required=True),
    "window": Option(
        help="the window; none is for concurrency, and for budgets of weighted tokens (default: "
        "none)"
    ),
    "amount": Option(is_required=True),
    "time_zone": Option(
        help="in which days, weeks and months begin (default: unchanged; UTC for a new limit)"
    ),
    "week_start": Option(
        help="the first day of a week, for a limit of one (default: unchanged; monday for a new "
        "limit)"
    ),
    "is_shadow": Option(
        "--shadow",
        help="refuse nothing, only count what would be refused (default: unchanged; a new limit "
        "refuses)",
    ),
    "alert_at": Option(
        "--alert-at",
        _percents,
        "PERCENTS",
        "percentages of a quota at which an alert is sent, such as 50,80,100; off, or platform "
        "for those of the platform (default: unchanged; a new limit has the platform's)",
    ),
}


def add_to(parser: argparse.ArgumentParser) -> None:
    actions = subcommands(parser)
    put = resource.add_command(
        actions,
        "set",
        set_limit,
        "Set a limit, or change the limit of the same scope, metric and window.",
        description="Set a limit, or change the limit of the same scope, metric and window: its "
        "options that are not given keep their values. A request has to satisfy all limits that "
        "apply to it.",
        epilog="for example:  vinery limit set --project search --metric tokens --window day "
        "--amount 1000000 --time-zone Europe/Berlin",
    )
    scope = put.add_mutually_exclusive_group(required=True)
    scope.add_argument("--platform", action="store_true", help="for all users together")
    each = "for each end user of this project, who is named in the requests"
    scope.add_argument("--end-users-of", dest="end_user", metavar="PROJECT", help=each)
    for name in (*FINDERS, "model"):
        metavar = "ID_OR_HINT" if name == "key" else "NAME"
        scope.add_argument(f"--{name}", metavar=metavar, help=f"for this {name}")
    resource.add_fields(put, LIMITS, _FIELDS)
    resource.add_list(actions, LIMITS, "List all limits.", extra=_whose)
    resource.add_list(
        actions,
        QUOTAS,
        "Show what is left of quotas, and when they run out. Quotas are limits of a day, a week, a "
        "month, and without end.",
        name="quotas",
        extra=_quota_columns,
    )
    one = RowCommands(actions, LIMITS, _limit_of, "id", "ID", "from `limit list`")
    one.add_remove("Remove a limit.", done=lambda limit: f"Removed: {_text(limit)}.")


def set_limit(arguments: argparse.Namespace) -> str:
    values = {"window": "none", **resource.values_of(arguments)}
    kind = {**_scope(arguments), "metric": values.pop("metric"), "window": values.pop("window")}
    limit = resource.put(LIMITS, kind, values)
    return f"Limit {limit.pk}: {_text(limit)}."


def _scope(arguments: argparse.Namespace) -> dict[str, Any]:
    if arguments.platform:
        return {"scope": "platform", "scope_id": 0, "model": ""}
    if arguments.model:
        return {"scope": "model", "scope_id": 0, "model": arguments.model}
    finders = {**FINDERS, "end_user": project_named}
    scope = next(name for name in finders if getattr(arguments, name))
    return {"scope": scope, "scope_id": finders[scope](getattr(arguments, scope)).pk, "model": ""}


def _limit_of(limit_id: str) -> Limit:
    known = Limit.objects.filter(pk=int(limit_id) if limit_id.isdecimal() else 0)
    return only(known, f"There is no limit {limit_id}. See: vinery limit list")


def _whose(limits: Sequence[Limit]) -> list[dict[str, str]]:
    """Return the names of the limits' owners, with one query for each table."""
    names: dict[tuple[str, int], str] = {}
    for scope, table in OWNERS.items():
        ids = {limit.scope_id for limit in limits if limit.scope == scope}
        rows = table._default_manager.filter(pk__in=ids)
        if table is Project:
            rows = rows.select_related("organization")
        names |= {(scope, row.pk): str(row) for row in rows}
    return [
        {"whose": each.model or names.get((each.scope, each.scope_id), str(each.scope_id or ""))}
        for each in limits
    ]


def _quota_columns(quotas: Sequence[Any]) -> list[dict[str, Any]]:
    pairs = zip(quotas, _whose(quotas), strict=True)
    return [{**owner, "since": quota.window_start} for quota, owner in pairs]


def _text(limit: Limit) -> str:
    return limit.described_for(_whose([limit])[0]["whose"])
