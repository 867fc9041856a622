"""`vinery weight`: the weights of tokens in budgets."""

from __future__ import annotations

import argparse
from typing import Final

from accounts.models import ModelWeight
from accounts.resources.limits import MODEL_WEIGHTS
from accounts.services import audit
from vinery.cli import resource
from vinery.cli.resource import Option
from vinery.cli.shape import Commands, Failure

_MODEL: Final = ("model", "MODEL", "the name that clients use")
_KINDS: Final = ("uncached", "cached", "output", "image")


def add_to(commands: Commands) -> None:
    """Add `vinery weight` and its commands."""
    actions = resource.add_group(commands, "weight", "set the weights of tokens in budgets")
    put = resource.add_command(
        actions,
        "set",
        set_weight,
        "Set the weights of a model. Weights that are not given keep their values, or are 1.",
    )
    put.add_argument(_MODEL[0], metavar=_MODEL[1], help=_MODEL[2])
    options = {kind: Option(metavar="WEIGHT", help=f"of each {kind} token") for kind in _KINDS}
    resource.add_fields(put, MODEL_WEIGHTS, _KINDS, options)
    resource.add_list(actions, MODEL_WEIGHTS, "List all weights.")
    resource.add_remove(
        actions,
        MODEL_WEIGHTS,
        _weights_of,
        "Remove the weights of a model: each of its tokens counts 1.",
        argument=_MODEL,
        done=lambda row: f"Tokens of {row.model} count 1.",
    )


def set_weight(arguments: argparse.Namespace) -> int:
    """Create or change the weights of a model. Raises `Failure`."""
    values = resource.values_of(arguments)
    with audit.writing():
        known = ModelWeight.objects.filter(model=arguments.model).first()
        if known is None:
            resource.create(MODEL_WEIGHTS, {"model": arguments.model, **values})
        else:
            resource.change(MODEL_WEIGHTS, known, values)
    print(f"The weights of {arguments.model} are set.")
    return 0


def _weights_of(model: str) -> ModelWeight:
    found = ModelWeight.objects.filter(model=model).first()
    if found is None:
        raise Failure(f"There are no weights of {model}. See: vinery weight list")
    return found
