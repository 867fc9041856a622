"""`vinery model`: which models are served, and which of them are loaded."""

from __future__ import annotations

import argparse
import json
import shutil
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from serving.engine.config import option_documents
from vinery.cli.shape import Commands, Failure, start_django, table


def add_to(commands: Commands) -> None:
    """Add `vinery model` and what is under it."""
    model = commands.add_parser("model", help="add, load, unload and list models")
    actions = model.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _add_add(actions)
    for name, run, help_text in (
        ("load", load, "start the engine of a model"),
        ("unload", unload, "end the engine of a model, and keep the model"),
        ("remove", remove, "serve a model no longer; its folder stays"),
    ):
        action = actions.add_parser(name, help=help_text, description=f"{help_text}.".capitalize())
        action.add_argument("name", metavar="NAME", help="the name that clients use")
        action.set_defaults(run=run)
    show = actions.add_parser(
        "list", help="list all models", description="List all models and their state."
    )
    show.set_defaults(run=list_models)


def _add_add(actions: Commands) -> None:
    add_ = actions.add_parser(
        "add",
        help="serve a model from a folder",
        description="Serve a folder with an exported OpenVINO model, and load it.",
        epilog=_options_epilog(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_.add_argument("folder", type=Path, metavar="FOLDER", help="where openvino_model.xml is")
    add_.add_argument("--name", required=True, help="the name that clients use")
    add_.add_argument("--device", default="CPU", help="OpenVINO device (default: %(default)s)")
    add_.add_argument(
        "--option",
        type=option,
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="an engine option of the list below, such as max_running=8; may be given several "
        "times",
    )
    add_.add_argument("--no-load", action="store_true", help="do not load it now")
    add_.set_defaults(run=add)


def _options_epilog() -> str:
    documents = option_documents()
    indent = " " * (max(len(document.name) for document in documents) + 4)
    width = shutil.get_terminal_size().columns - 2
    paragraphs = [
        textwrap.fill(
            f"  {document.name}".ljust(len(indent))
            + f"{document.meaning} (default: {document.default})",
            width=width,
            subsequent_indent=indent,
        )
        for document in documents
    ]
    return "\n".join(("engine options:", *paragraphs))


def option(text: str) -> tuple[str, Any]:
    """A key and a value, which is JSON if it reads as such, and text otherwise."""
    key, separator, value = text.partition("=")
    if not separator or not key:
        raise argparse.ArgumentTypeError(f"{text!r} is not like KEY=VALUE")
    try:
        return key, json.loads(value)
    except ValueError:
        return key, value


def add(arguments: argparse.Namespace) -> int:
    """Register a model. Raises `Failure` when the folder, the name or an option is bad."""
    start_django()
    from serving.catalog import registry

    with _refusals():
        registry.add_model(
            arguments.folder,
            name=arguments.name,
            device=arguments.device,
            options=dict(arguments.option),
            load=not arguments.no_load,
        )
    print(f"{arguments.name} is served from {arguments.folder.resolve()}.")
    return 0


def load(arguments: argparse.Namespace) -> int:
    """Ask for an engine. It starts within a second or two, if a node runs."""
    return _set_loaded(arguments.name, is_loaded=True)


def unload(arguments: argparse.Namespace) -> int:
    """Ask for the engine's end."""
    return _set_loaded(arguments.name, is_loaded=False)


def remove(arguments: argparse.Namespace) -> int:
    """Take a model out of service."""
    start_django()
    from serving.catalog import registry

    with _refusals():
        registry.remove_model(arguments.name)
    print(f"{arguments.name} is served no longer.")
    return 0


def list_models(_: argparse.Namespace) -> int:
    """Print a table of all models."""
    start_django()
    from serving.catalog import registry

    rows = [
        (model.name, model.status.state, model.device, model.folder, model.status.last_error)
        for model in registry.list_models()
    ]
    print(table(("NAME", "STATE", "DEVICE", "FOLDER", "LAST ERROR"), rows))
    return 0


def _set_loaded(name: str, *, is_loaded: bool) -> int:
    start_django()
    from serving.catalog import registry

    with _refusals():
        registry.set_loaded(name, is_loaded)
    print(f"{name} is being {'loaded' if is_loaded else 'unloaded'}. See: vinery model list")
    return 0


@contextmanager
def _refusals() -> Iterator[None]:
    """Turn what the registry refuses into a line."""
    from django.core.exceptions import ValidationError

    from serving.catalog.registry import UnknownModel

    try:
        yield
    except ValidationError as error:
        raise Failure(" ".join(error.messages)) from error
    except UnknownModel as error:
        raise Failure(f"{error} See: vinery model list") from error
