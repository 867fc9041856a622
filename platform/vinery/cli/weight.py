"""`vinery weight`: what tokens of a model count for in budgets."""

from __future__ import annotations

import argparse

from vinery.cli.shape import Commands, Failure, add_json, print_rows, refusals, start_django

_KINDS = ("uncached", "cached", "output", "image")


def add_to(commands: Commands) -> None:
    """Add `vinery weight` and what is under it."""
    weight = commands.add_parser("weight", help="say what tokens of a model count for in budgets")
    actions = weight.add_subparsers(title="commands", metavar="COMMAND", required=True)
    put = actions.add_parser(
        "set",
        help="set the weights of a model",
        description="Set weights of a model; those that are not named stay, or are 1.",
    )
    put.add_argument("model", metavar="MODEL", help="the name that clients use")
    for kind in _KINDS:
        put.add_argument(f"--{kind}", type=float, metavar="WEIGHT", help=f"of each {kind} token")
    put.set_defaults(run=set_weight)
    show = actions.add_parser("list", help="list all weights", description="List all weights.")
    add_json(show)
    show.set_defaults(run=list_weights)
    gone = actions.add_parser(
        "remove", help="let all tokens of a model count 1", description="Forget a model's weights."
    )
    gone.add_argument("model", metavar="MODEL", help="the name that clients use")
    gone.set_defaults(run=remove)


def set_weight(arguments: argparse.Namespace) -> int:
    """Make or change a row. Raises `Failure`."""
    start_django()
    from accounts.models import ModelWeight
    from accounts.services import audit, changes

    named = {kind: getattr(arguments, kind) for kind in _KINDS}
    values = {kind: value for kind, value in named.items() if value is not None}
    with refusals(), audit.writing():
        known = ModelWeight.objects.filter(model=arguments.model).first()
        if known is None:
            changes.add(ModelWeight(model=arguments.model, **values))
        else:
            changes.change(known, **values)
    print(f"The weights of {arguments.model} are set.")
    return 0


def list_weights(arguments: argparse.Namespace) -> int:
    """Print all rows."""
    start_django()
    from accounts.models import ModelWeight

    rows = list(ModelWeight.objects.values("model", *_KINDS))
    print_rows(rows, ("model", *_KINDS), as_json=arguments.json)
    return 0


def remove(arguments: argparse.Namespace) -> int:
    """Remove a row. Raises `Failure`."""
    start_django()
    from accounts.models import ModelWeight
    from accounts.services import changes

    weight = ModelWeight.objects.filter(model=arguments.model).first()
    if weight is None:
        raise Failure(f"There are no weights of {arguments.model}. See: vinery weight list")
    changes.remove(weight)
    print(f"Tokens of {arguments.model} count 1.")
    return 0
