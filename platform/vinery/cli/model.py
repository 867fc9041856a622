"""`vinery model`: which models are served, and which of them are loaded."""

import argparse
import json
import shutil
import textwrap
from functools import partial
from pathlib import Path
from typing import Any

from django.core.exceptions import ValidationError

from vinery.cli.find import only
from vinery.cli.resource import add_command
from vinery.cli.shape import Failure, subcommands, table
from vinery_accounts.services import changes
from vinery_serving.catalog import registry
from vinery_serving.catalog.models import ServedModel
from vinery_serving.engine.config import option_documents


def add_to(parser: argparse.ArgumentParser) -> None:
    actions = subcommands(parser)
    add_ = add_command(
        actions,
        "add",
        add,
        "Serve a model from a folder.",
        description="Serve a folder with an exported OpenVINO model, and load it.",
        epilog=_options_epilog(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_.add_argument("folder", type=Path, metavar="FOLDER", help="where openvino_model.xml is")
    add_.add_argument("--name", required=True, help="the name that clients use")
    add_.add_argument(
        "--device",
        default="CPU",
        help="a device that `vinery devices` lists, or several of them, such as AUTO:GPU,CPU "
        "(default: %(default)s)",
    )
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
    for name, run, text in (
        ("load", load, "Start the engine of a model."),
        (
            "unload",
            partial(load, is_loaded=False),
            "Stop the engine of a model, and keep the model.",
        ),
        ("remove", remove, "Stop serving a model. Its folder stays."),
    ):
        action = add_command(actions, name, run, text)
        action.add_argument("name", metavar="NAME", help="the name that clients use")
    add_command(actions, "list", list_models, "List all models and their state.")


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
    """Return a key and a value: JSON where it is valid JSON, else text."""
    key, separator, value = text.partition("=")
    if not separator or not key:
        raise argparse.ArgumentTypeError(f"{text!r} is not like KEY=VALUE")
    try:
        return key, json.loads(value)
    except ValueError:
        return key, value


def add(arguments: argparse.Namespace) -> str:
    """Register a model. Raises `Failure` for an invalid folder, name or option."""
    try:
        registry.add_model(
            arguments.folder,
            name=arguments.name,
            device=arguments.device,
            options=dict(arguments.option),
            load=not arguments.no_load,
        )
    except ValidationError as error:
        raise Failure(" ".join(error.messages)) from error
    return f"{arguments.name} is served from {arguments.folder.resolve()}."


def load(arguments: argparse.Namespace, *, is_loaded: bool = True) -> str:
    """Request an engine or its end. A running node follows within two seconds."""
    registry.load(_model_named(arguments.name), is_loaded)
    state = "loaded" if is_loaded else "unloaded"
    return f"{arguments.name} is being {state}. See: vinery model list"


def remove(arguments: argparse.Namespace) -> str:
    """Stop serving a model. Raises `Failure`."""
    changes.remove(_model_named(arguments.name))
    return f"{arguments.name} is no longer served."


def list_models(_: argparse.Namespace) -> int:
    rows = [
        (model.name, model.status.state_text, model.device, model.folder, model.status.reason)
        for model in registry.list_models()
    ]
    print(table(("NAME", "STATE", "DEVICE", "FOLDER", "LAST ERROR"), rows))
    return 0


def _model_named(name: str) -> ServedModel:
    missing = f"No model is served as {name}. See: vinery model list"
    return only(ServedModel.objects.filter(name=name), missing)
