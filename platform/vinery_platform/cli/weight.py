"""`vinery weight`: the weights of tokens in budgets."""

import argparse
from typing import Final

from vinery_accounts.models import ModelWeight
from vinery_accounts.resources.limits import MODEL_WEIGHTS
from vinery_platform.cli import resource
from vinery_platform.cli.find import only
from vinery_platform.cli.resource import Option, RowCommands
from vinery_platform.cli.shape import subcommands

_MODEL_HELP: Final = "the name that clients use"
_OPTIONS: Final = {
    kind: Option(metavar="WEIGHT", help=f"of each {kind} token")
    for kind in ("uncached", "cached", "output", "image")
}


def add_to(parser: argparse.ArgumentParser) -> None:
    actions = subcommands(parser)
    put = resource.add_command(
        actions,
        "set",
        set_weights,
        "Set the weights of a model. Weights that are not given keep their values, or are 1.",
    )
    put.add_argument("model", metavar="MODEL", help=_MODEL_HELP)
    resource.add_fields(put, MODEL_WEIGHTS, _OPTIONS)
    resource.add_list(actions, MODEL_WEIGHTS, "List all weights.")
    one = RowCommands(actions, MODEL_WEIGHTS, _weights_of, "model", "MODEL", _MODEL_HELP)
    one.add_remove(
        "Remove the weights of a model: each of its tokens counts 1.",
        done=lambda row: f"Tokens of {row.model} count 1.",
    )


def set_weights(arguments: argparse.Namespace) -> str:
    resource.put(MODEL_WEIGHTS, {"model": arguments.model}, resource.values_of(arguments))
    return f"The weights of {arguments.model} are set."


def _weights_of(model: str) -> ModelWeight:
    missing = f"There are no weights of {model}. See: vinery weight list"
    return only(ModelWeight.objects.filter(model=model), missing)
