"""`vinery alias`: other names of models, between which requests are divided."""

import argparse

from vinery_platform.cli import resource
from vinery_platform.cli.find import only
from vinery_platform.cli.resource import RowCommands
from vinery_platform.cli.shape import subcommands
from vinery_serving.catalog.alias_resource import MODEL_ALIASES, targets_text
from vinery_serving.catalog.aliases import ModelAlias


def add_to(parser: argparse.ArgumentParser) -> None:
    actions = subcommands(parser)
    put = resource.add_command(
        actions,
        "set",
        set_alias,
        "Let a name stand for models.",
        description="Let a name stand for a model, or for several by weights: after `vinery alias "
        "set chat qwen-a=90 qwen-b=10`, nine of ten requests for chat go to qwen-a. A model with "
        "the weight 0 answers only if no other can. The former models of the name are replaced.",
    )
    put.add_argument("name", metavar="NAME", help="the name that clients send")
    put.add_argument(
        "targets",
        metavar="MODEL[=WEIGHT]",
        type=target,
        nargs="+",
        help="a served model; without a weight: 1",
    )
    resource.add_list(actions, MODEL_ALIASES, "List all aliases.")
    one = RowCommands(actions, MODEL_ALIASES, _alias_named, "name", "NAME", "the alias")
    one.add_remove("Remove an alias. Its models stay.")


def target(text: str) -> tuple[str, int]:
    """Return a model's name and its weight."""
    name, separator, weight = text.partition("=")
    if separator and not weight.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not like MODEL=90")
    return name, int(weight) if separator else 1


def set_alias(arguments: argparse.Namespace) -> str:
    """Create or replace an alias. Raises `Failure` for a name or models that cannot be."""
    row = resource.put(
        MODEL_ALIASES, {"name": arguments.name}, {"targets": dict(arguments.targets)}
    )
    return f"{row} stands for {targets_text(row.targets)}."


def _alias_named(name: str) -> ModelAlias:
    missing = f"There is no alias {name}. See: vinery alias list"
    return only(ModelAlias.objects.filter(name=name), missing)
