"""`vinery catalog` and `convert`: ready-made models, and environments that convert checkpoints.

Needs no Django, no running Vinery and no torch. `vinery model convert` converts.
"""

import argparse
import asyncio
import sys
from dataclasses import asdict
from typing import Any, Final

from vinery_platform.cli import shape
from vinery_platform.config import env
from vinery_platform.config.home import Home
from vinery_serving.models.convert.checkpoint import ConvertError, architectures, line_named
from vinery_serving.models.convert.environments import Environments, torch_index
from vinery_serving.models.hub.catalogue import CatalogueModel, catalogue, check
from vinery_serving.models.hub.client import Hub
from vinery_serving.models.hub.errors import PullFailed
from vinery_serving.models.hub.machine import Machine, this_machine
from vinery_serving.models.hub.verdict import gigabytes

_HEADS: Final = ("name", "task", "size", "memory", "fits", "precision", "abilities", "licence")
_CHECK_HEADS: Final = ("name", "repository", "problem")


def add_catalog(parser: argparse.ArgumentParser) -> None:
    actions = shape.subcommands(parser)
    list_ = shape.add_command(actions, "list", list_models)
    tasks = sorted({each.task.value for each in catalogue()})
    list_.add_argument("--task", choices=tasks, help="only those of this task")
    shape.add_switch(list_, "--fits", "only those that this machine can run")
    shape.add_json(list_)
    check_ = shape.add_command(actions, "check", check_models)
    check_.add_argument("--endpoint", help="URL of the hub (default: HF_ENDPOINT)")
    shape.add_json(check_)


def list_models(arguments: argparse.Namespace) -> int:
    """List the models of the catalogue. Memory is for weights, one conversation of up to 8,192
    tokens, and the engine. To fetch and serve one: vinery model pull NAME"""
    machine = this_machine(Home.from_env().models)
    rows = [
        _row(model, machine, as_json=arguments.json)
        for model in catalogue()
        if arguments.task in (None, model.task) and (not arguments.fits or model.fits(machine))
    ]
    shape.print_rows(rows, _HEADS, as_json=arguments.json)
    return 0


def _row(model: CatalogueModel, machine: Machine, *, as_json: bool) -> dict[str, Any]:
    fits, need = model.fits(machine), model.need
    if as_json:
        memory = asdict(need) | {"total_bytes": need.total_bytes}
        return asdict(model) | {"size_bytes": model.size_bytes, "memory": memory, "fits": fits}
    return {
        "name": model.name,
        "task": model.task,
        "size": "shipped" if model.shipped else gigabytes(model.size_bytes),
        "memory": gigabytes(need.total_bytes),
        "fits": "yes" if fits else "no",
        "precision": model.precision,
        "abilities": ", ".join(model.abilities),
        "licence": model.licence,
    }


def check_models(arguments: argparse.Namespace) -> int:
    """Compare the repositories, sizes and licences of the catalogue with a hub. The exit status is
    1 if one differs."""
    with shape.failing_on(PullFailed):
        rows = list(check(Hub.of_environment(arguments.endpoint)))
    shape.print_rows(rows, _CHECK_HEADS, as_json=arguments.json)
    return int(any(row["problem"] for row in rows))


def add_convert(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Checkpoints are converted in environments of their own, one for each line of "
        "transformers that architectures need. A conversion makes the one that is missing. These "
        "commands list, make and remove them. Vinery need not run."
    )
    actions = shape.subcommands(parser)
    shape.add_json(shape.add_command(actions, "environments", environments))
    for name, run in (("make", make), ("remove", remove)):
        one = shape.add_command(actions, name, run)
        one.add_argument("line", metavar="LINE", help="from `vinery convert environments`")
    shape.add_json(shape.add_command(actions, "architectures", known_architectures))


def environments(arguments: argparse.Namespace) -> int:
    """List the environments with state and size."""
    rows = [row | {"folder": str(row["folder"])} for row in _environments().states()]
    if not arguments.json:
        rows = [row | {"size": gigabytes(row["num_bytes"])} for row in rows]
    shape.print_rows(rows, ("line", "state", "size", "folder"), as_json=arguments.json)
    return 0


@shape.failing_on(ConvertError)
def make(arguments: argparse.Namespace) -> str:
    """Make an environment now. A conversion makes its own."""

    def write(output: bytes) -> None:
        sys.stdout.buffer.write(output)
        sys.stdout.flush()

    try:
        made = asyncio.run(_environments().ensure(line_named(arguments.line), write))
    except KeyboardInterrupt:
        raise shape.Failure("Interrupted. Nothing of the environment is left.") from None
    return f"The environment {arguments.line} is ready: {made}"


@shape.failing_on(ConvertError)
def remove(arguments: argparse.Namespace) -> str:
    """Remove an environment, which frees its disk space."""
    is_removed = _environments().remove(line_named(arguments.line))
    return f"The environment {arguments.line} {'is removed' if is_removed else 'was not there'}."


def known_architectures(arguments: argparse.Namespace) -> int:
    """List what can be converted."""
    known = sorted(architectures().values(), key=lambda each: each.model_type)
    rows = [
        {"model_type": each.model_type, "line": each.line.name, "tasks": list(each.tasks)}
        for each in known
    ]
    shape.print_rows(rows, ("model_type", "line", "tasks"), as_json=arguments.json)
    return 0


def _environments() -> Environments:
    home = Home.from_env()
    if not home.path.is_dir():
        raise home.missing()
    return Environments(home.environments, torch_index(env.text("VINERY_JOB_TORCH_INDEX")))
