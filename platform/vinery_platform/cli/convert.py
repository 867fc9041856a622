"""`vinery convert`: the environments in which checkpoints are converted, and what they can convert.

Needs no Django, no running Vinery and no torch. `vinery model convert` converts.
"""

import argparse
import asyncio
import sys
from typing import Any

from vinery_platform.cli.shape import Failure, add_json, print_line, print_rows, subcommands
from vinery_platform.config import env
from vinery_platform.config.home import Home
from vinery_serving.convert.environments import Environments, EnvironmentState
from vinery_serving.convert.errors import ConvertError
from vinery_serving.convert.job import torch_index
from vinery_serving.convert.lines import architectures, line_named


def add_to(parser: argparse.ArgumentParser) -> None:
    actions = subcommands(parser)
    list_ = _add(
        actions, "environments", environments, "List the environments with state and size."
    )
    add_json(list_)
    make_ = _add(actions, "make", make, "Make an environment now. A conversion makes its own.")
    remove_ = _add(actions, "remove", remove, "Remove an environment, which frees its disk space.")
    for each in (make_, remove_):
        each.add_argument("line", metavar="LINE", help="from `vinery convert environments`")
    known = _add(actions, "architectures", known_architectures, "List what can be converted.")
    add_json(known)


def _add(actions: Any, name: str, action: Any, text: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = actions.add_parser(name, help=text, description=text)
    parser.set_defaults(action=action)
    return parser


def run(arguments: argparse.Namespace) -> int:
    """Raises `Failure` and `SettingError`."""
    try:
        status: int = arguments.action(arguments)
    except ConvertError as error:
        raise Failure(str(error)) from error
    return status


def environments(arguments: argparse.Namespace) -> int:
    rows = [_row(each, as_json=arguments.json) for each in _environments().states()]
    print_rows(rows, ("line", "state", "size", "folder"), as_json=arguments.json)
    return 0


def _row(state: EnvironmentState, *, as_json: bool) -> dict[str, Any]:
    row = {"line": state.line, "state": state.state, "folder": str(state.folder)}
    if as_json:
        return row | {"num_bytes": state.num_bytes}
    return row | {"size": f"{state.num_bytes / 2**30:.1f} GiB" if state.num_bytes else None}


def make(arguments: argparse.Namespace) -> int:
    """Print the output of pip while it runs. Ctrl-C leaves nothing behind."""

    def write(output: bytes) -> None:
        sys.stdout.buffer.write(output)
        sys.stdout.flush()

    try:
        made = asyncio.run(_environments().ensure(line_named(arguments.line), write))
    except KeyboardInterrupt:
        raise Failure("Interrupted. Nothing of the environment is left.") from None
    print_line(f"The environment {arguments.line} is ready: {made.folder}")
    return 0


def remove(arguments: argparse.Namespace) -> int:
    is_removed = _environments().remove(line_named(arguments.line))
    what = "is removed" if is_removed else "was not there"
    print_line(f"The environment {arguments.line} {what}.")
    return 0


def known_architectures(arguments: argparse.Namespace) -> int:
    known = sorted(architectures().values(), key=lambda each: each.model_type)
    rows = [
        {"model_type": each.model_type, "line": each.line.name, "tasks": list(each.tasks)}
        for each in known
    ]
    print_rows(rows, ("model_type", "line", "tasks"), as_json=arguments.json)
    return 0


def _environments() -> Environments:
    home = Home.from_env()
    if not home.path.is_dir():
        raise home.missing()
    return Environments(home.environments, torch_index(env.text("VINERY_JOB_TORCH_INDEX")))
