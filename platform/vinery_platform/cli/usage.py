"""`vinery usage` and `demo-data`: usage as a table or a file, whether records and rollups agree, or
usage that is made up."""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final
from zoneinfo import ZoneInfo

from vinery_accounts.access.served import served_to
from vinery_accounts.base.money import MILLION, money
from vinery_accounts.models import Currency, ModelWeight
from vinery_accounts.resources.usage import MEASURES, body_of, question_of, usage_filters
from vinery_accounts.usage import export as files
from vinery_accounts.usage.entries import Outcome
from vinery_accounts.usage.filters import NO_STATUS, STATUS_CLASSES, Dimension
from vinery_accounts.usage.periods import Granularity
from vinery_accounts.usage.upkeep import verify
from vinery_platform.cli import shape
from vinery_platform.cli.resource import FINDERS, ids_of, metavar_of

_Row = tuple[Sequence[str], Mapping[str, Any]]  # what is counted, and its figures
_UNITS: Final = frozenset({"COST", "WEIGHTED"})
_COLUMNS: Final = {
    "REQUESTS": "num_requests",
    "ERRORS": "num_errors",
    "LIMITED": "num_limited",
    "CLIENT": "num_client_errors",
    "SERVER": "num_server_errors",
    "CUT SHORT": "num_cut_short",
    "INPUT": "num_prompt_tokens",
    "CACHED": "num_cached_tokens",
    "IMAGE": "num_image_tokens",
    "VIDEO": "num_video_tokens",
    "OUTPUT": "num_output_tokens",
    "REASONING": "num_reasoning_tokens",
    "WEIGHTED": "weighted_tokens",
    "COST": "cost",
    "MEDIA": "num_media",
    "MEDIA BYTES": "num_media_bytes",
    "PIXELS": "num_media_pixels",
    "FIRST TOKEN p50/p95/p99 ms": "first_token_ms",
    "TOTAL p50/p95/p99 ms": "total_ms",
}
# Columns that are left out where they are 0 in all rows.
_RARE: Final = frozenset(
    {"LIMITED", "CLIENT", "SERVER", "CUT SHORT", "IMAGE", "VIDEO", "MEDIA", "MEDIA BYTES", "PIXELS"}
)


def add_usage(parser: argparse.ArgumentParser) -> None:
    actions = shape.subcommands(parser)
    show = shape.add_command(actions, "show", show_usage)
    _add_selection(show)
    by, text = (each.replace("_", "-") for each in Dimension), "group by this dimension"
    show.add_argument(
        "--by", choices=list(by), action="append", help=f"{text}; may be given several times"
    )
    shape.add_number(show, "--top", 20, "how many groups")
    show.add_argument("--sort", choices=MEASURES, default="requests", help="the largest first")
    show.add_argument("--granularity", choices=list(Granularity), help="the interval of points")
    shape.add_json(show)
    to_file = shape.add_command(actions, "export", export_usage)
    _add_selection(to_file)
    shape.add_file(to_file)
    check = shape.add_command(actions, "verify", verify_usage)
    shape.add_period(check)
    shape.add_switch(check, "--repair", "replace rollups that differ from the records")


def show_usage(arguments: argparse.Namespace) -> int:
    """Print usage by time, or by the dimensions that it is grouped by. Intervals without a request
    are left out. --json prints the answer of GET /api/usage/, which has all intervals."""
    zone = arguments.time_zone
    question = question_of(shape.period_of(arguments), _values(arguments), None, zone)
    by = [Dimension(name.replace("-", "_")) for name in arguments.by or ()]
    question = question if by else replace(question, granularity=question.point)
    body = body_of(question, by, arguments.top, arguments.sort)
    if arguments.json:
        print(shape.json_of(body))
        return 0
    heads = tuple(name.upper() for name in arguments.by or (str(question.point),))
    rows = list(_groups(body) if by else _points(body, zone))
    unit = "COST" if body["currency"] else "WEIGHTED" if ModelWeight.objects.exists() else ""
    shown = {
        f"COST {body['currency']}" if head == "COST" else head: name
        for head, name in _COLUMNS.items()
        if (head == unit or head not in _UNITS)
        and (head not in _RARE or any(figures[name] for _, figures in rows))
    }
    cells = [[*row, *(_cell(figures, name) for name in shown.values())] for row, figures in rows]
    print(shape.table((*heads, *shown), cells))
    return 0


def _groups(body: Mapping[str, Any]) -> Iterator[_Row]:
    for each in body["groups"]:
        names = zip(each["values"].values(), each["names"].values(), strict=True)
        cells = [f"{name} ({id_})" if isinstance(id_, int) else name or "-" for id_, name in names]
        yield cells, each["figures"]


def _points(body: Mapping[str, Any], zone: ZoneInfo) -> Iterator[_Row]:
    for point in body["points"]:
        if point["figures"]["num_requests"]:
            yield [f"{point['since'].astimezone(zone):%Y-%m-%d %H:%M}"], point["figures"]
    yield ["TOTAL"], body["totals"]


def _cell(figures: Mapping[str, Any], name: str) -> str:
    value = figures[name]
    if isinstance(value, Mapping):
        return " / ".join(f"{value[each]:,.0f}" for each in ("p50", "p95", "p99"))
    if value is None:
        return "-"
    if name == "cost":
        return money(value * MILLION, "")
    return f"{value:,.10g}" if value % 1 else f"{value:,.0f}"


def export_usage(arguments: argparse.Namespace) -> int:
    """Write usage records to a file, one line for each request."""
    since, until = shape.period_of(arguments)
    filters = usage_filters(_values(arguments))
    selection = files.Selection(since=since, until=until, filters=filters, visible=None)
    return shape.write_file(
        arguments.output, files.export(selection, files.Format(arguments.format))
    )


def verify_usage(arguments: argparse.Namespace) -> int:
    """Compare usage records with their rollups. Records are added up again, day by day in UTC. Each
    difference is printed; the exit status is then 1."""
    is_balanced = True
    for checked in verify(*shape.period_of(arguments), repair=arguments.repair):
        for difference in checked.differences:
            print(difference)
        found = f"{len(checked.differences)} differences" if checked.differences else "balanced"
        repaired = ", repaired" if checked.differences and arguments.repair else ""
        print(f"{checked.day:%Y-%m-%d}: {checked.num_rows} requests, {found}{repaired}")
        is_balanced = is_balanced and not checked.differences
    return 0 if is_balanced else 1


def _add_selection(parser: argparse.ArgumentParser) -> None:
    shape.add_period(parser)
    options = {name: (metavar_of(name), f"only this {name}'s") for name in FINDERS}
    others = ("model", "endpoint", "outcome", "end-user")
    options |= {name: ("NAME", f"only with this {name}") for name in others}
    for name, (metavar, text) in options.items():
        parser.add_argument(f"--{name}", action="append", metavar=metavar, help=text)
    parser.add_argument(
        "--status",
        action="append",
        choices=[*STATUS_CLASSES, NO_STATUS],
        help="only with an HTTP status of this class; none: requests without a response",
    )


def _values(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the values of the filters. Raises `Failure` for an unknown name."""
    for name in arguments.outcome or ():
        if name not in list(Outcome):
            raise shape.Failure(f"There is no outcome {name}. There are: {', '.join(Outcome)}.")
    values = vars(arguments)
    return {**values, **{kind: ids_of(kind, values[kind]) for kind in FINDERS}}


# -- Made-up usage

_MOST_REQUESTS: Final = 200_000
_MOST_DAYS: Final = 366


def add_demo_data(parser: argparse.ArgumentParser) -> None:
    shape.add_number(parser, "--days", 30, "how many days until now")
    shape.add_number(parser, "--requests", 20_000, "how many requests")
    shape.add_number(parser, "--seed", 1, "another number makes up other usage")
    shape.add_switch(parser, "--remove", "remove all that was made up")
    shape.add_switch(parser, "--yes", "also beside the usage of others")


def run_demo_data(arguments: argparse.Namespace) -> str:
    """Make up usage, people, prices and refusals for trials. The organisations are "Demo Acme" and
    "Demo Labs". Another run replaces them, and --remove removes them with all that belongs to them;
    only the audit log keeps its entries. Where there is no currency, EUR is set, and removed again
    unless something else has a price."""
    from vinery_accounts.keys.demo import has_other_usage, make_demo, remove_demo

    if arguments.remove:
        return "The demo data is removed." if remove_demo() else "There is no demo data."
    if arguments.requests > _MOST_REQUESTS or arguments.days > _MOST_DAYS:
        raise shape.Failure(f"Ask for at most {_MOST_REQUESTS} requests and {_MOST_DAYS} days.")
    if not arguments.yes and has_other_usage():
        raise shape.Failure("There is usage of others here. Add --yes to make up usage beside it.")
    had_currency = bool(Currency.current())
    num = make_demo(
        [model.name for model in served_to(None) if not model.is_alias],
        until=datetime.now(UTC),
        num_requests=arguments.requests,
        days=arguments.days,
        seed=arguments.seed,
    )
    code = Currency.current()
    new = "" if had_currency else ". This currency is set, because there was none"
    text = f"{num} requests are made up, and the models demo-* have prices in {code}{new}"
    return f"{text}. Remove everything with: vinery demo-data --remove"
