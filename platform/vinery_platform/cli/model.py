"""`vinery model`: which models are served, and which of them are loaded."""

import argparse
import json
import shutil
import textwrap
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from django.core.exceptions import ValidationError

from vinery_accounts.base.names import escaped
from vinery_accounts.resources.base import EVERYTHING
from vinery_platform.cli import logs, model_pull, model_speed, resource
from vinery_platform.cli.find import ids_of, only
from vinery_platform.cli.resource import Option, RowCommands, add_command
from vinery_platform.cli.shape import Commands, Failure, add_json, json_of, print_line, subcommands
from vinery_serving.catalog import conversions, registry
from vinery_serving.catalog.engine_log import engine_log, engine_log_text
from vinery_serving.catalog.models import ServedModel
from vinery_serving.catalog.resource import MODELS, ServedModelSerializer
from vinery_serving.catalog.shipped import shipped_models
from vinery_serving.convert.options import CONVERT_TYPES, documented_options
from vinery_serving.engine.option_parsing import option_documents

_DEVICE_HELP: Final = (
    "a device that `vinery devices` lists, or several of them, such as AUTO:GPU,CPU"
)
_SHIPPED: Final = ", ".join(shipped_models())

# More than the node gives a test.
_TEST_WITHIN_S: Final = 90.0
_POLL_S: Final = 0.2
# `vinery logs` shows more.
_NUM_LOG_LINES: Final = 20


def add_to(parser: argparse.ArgumentParser) -> None:
    actions = subcommands(parser)
    _add_add(actions)
    model_pull.add_to(actions, _DEVICE_HELP)
    _add_convert(actions)
    resource.add_list(
        actions, MODELS, "List all models and their state. `show` has log lines, too."
    )
    one = RowCommands(actions, MODELS, _model_named, help="the name that clients use")
    add_json(one.add("show", show, "Show a model, its state, its last error and log lines."))
    _add_change(one)
    one.add_actions(
        "load",
        "unload",
        "retry",
        done=lambda row, action: f"{row} is {action.done}. See: vinery model show {row}",
    )
    logs.add_lines_to(one.add("logs", show_log, "Show and follow the log of a model's engine."))
    one.add("self-test", self_test, MODELS.action("self-test").help)
    model_speed.add_to(actions, one)
    rename_ = one.add("rename", rename, "Rename a model.")
    rename_.add_argument("new_name", metavar="NEW_NAME", help="the new name")
    one.add_remove(
        "Stop serving a model. Its folder stays.", done=lambda row: f"{row} is no longer served."
    )


def _add_add(actions: Commands) -> None:
    add_ = add_command(
        actions,
        "add",
        add,
        "Serve a model from a folder.",
        description="Serve a folder with an exported OpenVINO model, and load it.",
        epilog=_options_epilog(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_.add_argument(
        "folder",
        type=Path,
        metavar="FOLDER",
        help=f"where openvino_model.xml is, or what ships with Vinery: {_SHIPPED}",
    )
    add_.add_argument("--name", help="the name that clients use (default: that of the folder)")
    add_.add_argument("--device", default="CPU", help=f"{_DEVICE_HELP} (default: %(default)s)")
    _add_options(add_, "an engine option of the list below, such as max_running=8")
    add_.add_argument("--no-load", action="store_true", help="do not load it now")


def _add_change(one: RowCommands) -> None:
    change_ = one.add_change(
        "Change the folder, the device or the options of a model, or the projects that see it. The "
        "engine serves until one with the new settings has loaded.",
        {
            "folder": Option(parse=_absolute, help="where openvino_model.xml is"),
            "device": Option(help=_DEVICE_HELP),
            "project_ids": Option(
                "--project",
                parse=lambda word: ids_of("project", [word])[0],
                metavar="ID_OR_NAME",
                help="only keys of this project, or of several, see and use the model",
                clear="--any-project",
                is_list=True,
            ),
            "num_replicas": Option(flag="--replicas", help="how many engines serve it"),
            "replica_devices": Option(
                flag="--replica-device",
                help="the device of a replica, or of several in turn",
                clear="--one-device",
                is_list=True,
            ),
            "is_pinned": Option(flag="--pinned", help="it never sleeps"),
            "idle_s": Option(help="seconds without a request after which it sleeps; 0: never"),
        },
        run=change,
    )
    _add_options(change_, "an engine option, such as max_running=8; an empty value: its default")


def _add_convert(actions: Commands) -> None:
    convert_ = add_command(
        actions,
        "convert",
        convert,
        "Convert a checkpoint, and serve the result.",
        description="Convert a checkpoint of Hugging Face, such as safetensors, to OpenVINO, and "
        "serve the result. The environment that this needs is made first, if it is missing: about "
        "2 GB. `vinery convert architectures` lists what can be converted.",
    )
    convert_.add_argument("folder", type=Path, metavar="FOLDER", help="where its config.json is")
    convert_.add_argument("--name", help="the name that clients use (default: that of the folder)")
    convert_.add_argument("--device", default="CPU", help=f"{_DEVICE_HELP} (default: %(default)s)")
    convert_.add_argument("--no-load", action="store_true", help="do not load it then")
    for name, meaning in documented_options():
        kind = CONVERT_TYPES[name]
        words: dict[str, Any] = {"action": "store_true"} if kind is bool else {"type": kind}
        convert_.add_argument(
            f"--{name.replace('_', '-')}", default=None, help=meaning.replace("%", "%%"), **words
        )


def convert(arguments: argparse.Namespace) -> str:
    """Raises `Failure` for a checkpoint or options with which no conversion can begin."""
    given = {name: getattr(arguments, name) for name in CONVERT_TYPES}
    values = {name: value for name, value in given.items() if value is not None}
    name = arguments.name or arguments.folder.resolve().name
    load = not arguments.no_load
    try:
        job = conversions.begin(arguments.folder, name, values, device=arguments.device, load=load)
    except ValidationError as error:
        raise Failure(" ".join(error.messages)) from error
    return (
        f"Converting for {name}. Progress: vinery job show {job.pk}; log: vinery job log {job.pk}"
    )


def _add_options(parser: argparse.ArgumentParser, text: str) -> None:
    parser.add_argument(
        "--option",
        type=option,
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help=f"{text}; may be given several times",
    )


def _options_epilog() -> str:
    documents = option_documents()
    indent = " " * (max(len(document.name) for document in documents) + 4)
    width = shutil.get_terminal_size().columns - 2
    paragraphs = [
        textwrap.fill(
            f"  {document.name}".ljust(len(indent))
            + f"{document.meaning} ({document.default_text})",
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
    """Register a model. Raises `Failure` for an invalid folder, name, device or option."""
    try:
        model = registry.add_model(
            arguments.folder,
            name=arguments.name or arguments.folder.resolve().name,
            device=arguments.device,
            options=dict(arguments.option),
            load=not arguments.no_load,
        )
    except ValidationError as error:
        raise Failure(" ".join(error.messages)) from error
    added = f"Added {model} from {model.folder}."
    if arguments.no_load:
        return f"{added} To load it: vinery model load {model}"
    return f"{added} Loading; see: vinery model show {model}"


def change(model: ServedModel, arguments: argparse.Namespace) -> str:
    """Change what is given. An option with an empty value gets its default again."""
    values = resource.values_of(arguments)
    if arguments.option:
        options = model.options | dict(arguments.option)
        values["options"] = {key: value for key, value in options.items() if value != ""}
    MODELS.change(EVERYTHING, model, values)
    return f"{model} is changed." if values else f"{model} is unchanged."


def rename(model: ServedModel, arguments: argparse.Namespace) -> str:
    """Rename a model. Prints what still has the old name."""
    renamed = MODELS.change(EVERYTHING, model, {"name": arguments.new_name})
    for warning in getattr(renamed, "warnings", ()):
        print_line(warning)
    return f"The name is now {renamed}."


def self_test(model: ServedModel, _: argparse.Namespace) -> int:
    """Print what a vision model makes of known pictures. Returns 0 if it distinguishes them. Raises
    `Failure` if no result comes in time."""
    MODELS.act(EVERYTHING, MODELS.action("self-test"), model)
    deadline_s = time.monotonic() + _TEST_WITHIN_S
    while model.test_asked_at is not None:
        if time.monotonic() > deadline_s:
            raise Failure(
                f"{model} has no result after {_TEST_WITHIN_S:g} s. Is its node running? See: "
                f"vinery status"
            )
        time.sleep(_POLL_S)
        model = _model_named(model.name)
    failure = model.status.picture_failure
    print_line(f"{model}: {failure or 'passed'}")
    return int(bool(failure))


def show_log(model: ServedModel, arguments: argparse.Namespace) -> int:
    """Print what the engine has logged, and the node about it. Raises `Failure` without a log."""
    return logs.run(argparse.Namespace(**vars(arguments) | {"model": model.name, "process": None}))


def show(model: ServedModel, arguments: argparse.Namespace) -> int:
    """Print a model with its engine, the whole last error and the last log lines."""
    (model,) = MODELS.load([model])
    body = ServedModelSerializer(model, context={"access": EVERYTHING}).data
    if arguments.json:
        print(json_of({**body, "log": engine_log(model.name)}))
        return 0
    for name, value in _lines(model):
        print_line(f"{name + ':':<9} {value}")
    if model.status.last_error:
        print(f"\n{escaped(model.status.last_error, keep=chr(10))}")
    print(f"\n{engine_log_text(model.name, _NUM_LOG_LINES)}")
    return 0


def _lines(model: ServedModel) -> list[tuple[str, object]]:
    status = model.status
    # A model that was never loaded has no report of an engine.
    since = f", since {status.changed_at:%Y-%m-%d %H:%M:%S} UTC" if status.changed_at else ""
    engine = f"process {status.pid}, " if status.pid else ""
    lines: list[tuple[str, object]] = [
        ("name", model),
        ("state", f"{model.state_text}{since}"),
        ("folder", model.folder),
        ("source", _source_text(model.source)),
        ("device", model.device),
        ("options", json.dumps(model.options)),
        ("context", f"{status.max_context} tokens" if status.max_context else "unknown"),
        ("engine", f"{engine}restarts: {status.num_restarts}"),
    ]
    lines += [(f"replica {each['replica']}", _replica_text(each)) for each in status.replicas]
    if status.memory_text:
        lines.append(("memory", status.memory_text))
    if model.waiting_text:
        lines.append(("waiting", model.waiting_text))
    if status.attempts_text:
        lines.append(("attempts", status.attempts_text))
    return lines


def _replica_text(replica: Mapping[str, Any]) -> str:
    """One engine of a model with several."""
    text = f"{replica['state']} on {replica['device']}, restarts: {replica['num_restarts']}"
    reason = replica["error"].partition("\n")[0]
    return f"{text}. {reason}" if reason else text


def _source_text(source: Mapping[str, Any]) -> str:
    """Where the files were pulled from."""
    if not source:
        return "the folder"
    if source["kind"] != "hub":
        return str(source.get("url") or source["path"])
    return f"{source['repository']} at {source['commit'][:12]}, revision {source['revision']}"


def _absolute(text: str) -> str:
    return str(Path(text).expanduser().resolve())


def _model_named(name: str) -> ServedModel:
    missing = f"No model is served as {name}. See: vinery model list"
    return only(MODELS.rows(EVERYTHING).filter(name=name), missing)
