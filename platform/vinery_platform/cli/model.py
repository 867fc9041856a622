"""`vinery model`: which models are served, and which are loaded."""

import argparse
import json
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from django.utils.functional import lazy

from vinery_accounts.base.names import escaped
from vinery_accounts.resources.base import EVERYTHING
from vinery_platform.cli import logs, resource, shape
from vinery_platform.cli.models import add_files, add_speed
from vinery_serving.engine.options import option_documents, option_value
from vinery_serving.models import registry
from vinery_serving.models.engine_work import engine_log, engine_log_text
from vinery_serving.models.models import ServedModel, shipped_models
from vinery_serving.models.resource import MODELS, ServedModelSerializer

_DEVICE_HELP: Final = (
    "a device that `vinery devices` lists, or several of them, such as AUTO:GPU,CPU"
)

_OPTIONS: Final = {
    "folder": resource.Option(parse=lambda text: str(Path(text).expanduser().resolve())),
    "device": resource.Option(help=_DEVICE_HELP),
    "project_ids": resource.Option(
        "--project",
        parse=lambda word: resource.ids_of("project", [word])[0],
        metavar="ID_OR_NAME",
        help="only keys of this project, or of several, see and use the model",
        clear="--any-project",
        is_list=True,
    ),
    "num_replicas": resource.Option("--replicas", help="how many engines serve it"),
    "replica_devices": resource.Option(
        "--replica-device",
        help="the device of a replica, or of several in turn",
        clear="--one-device",
    ),
    "host_labels": resource.Option(
        "--host-label",
        metavar="LABEL=VALUE",
        help="of several hosts, only those with this label run it, such as host=moon",
        clear="--any-host",
    ),
    "is_pinned": resource.Option(help="it never sleeps"),
    "idle_s": resource.Option(
        "--idle-s", help="seconds without a request after which it sleeps; 0: never"
    ),
}
# More than the node gives a test.
_TEST_WITHIN_S: Final = 90.0
_POLL_S: Final = 0.2
# `vinery logs` shows more.
_NUM_LOG_LINES: Final = 20


def add_model(parser: argparse.ArgumentParser) -> None:
    actions = shape.subcommands(parser)
    _add_add(actions)
    add_files(actions)
    resource.add_list(
        actions, MODELS, "List all models and their state. `show` has log lines, too."
    )
    named = ("name", "NAME", "the name that clients use")
    one = resource.RowCommands(
        actions, MODELS, resource.model_named, *named, see="vinery model show {}", options=_OPTIONS
    )
    shape.add_json(one.add("show", show))
    text = "an engine option, such as max_running=8; an empty value: its default"
    _add_options(one.add_change(change), text)
    of_lists = {each.name for each in MODELS.actions if each.is_of_list}
    one.add_all(without={"change", "self-test", "bench", "tune", "apply-tuning", *of_lists})
    one.add_rename()
    logs.add_lines_to(one.add("logs", show_log))
    one.add("self-test", self_test, MODELS.action("self-test").help)
    add_speed(actions, one)


def _add_add(actions: shape.Commands) -> None:
    add_ = shape.add_command(
        actions,
        "add",
        add,
        epilog=lazy(_options_text, str)(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    text = f"where openvino_model.xml is, or what ships with Vinery: {', '.join(shipped_models())}"
    add_.add_argument("folder", type=Path, metavar="FOLDER", help=text)
    add_.add_argument("--name", help="the name that clients use (default: that of the folder)")
    add_.add_argument("--device", default="CPU", help=f"{_DEVICE_HELP} (default: %(default)s)")
    _add_options(add_, "an engine option of the list below, such as max_running=8")
    names = ("num_replicas", "replica_devices", "host_labels")
    more = {name: replace(_OPTIONS[name], clear="") for name in names}
    resource.add_fields(add_, resource.fields_of(MODELS), more)
    shape.add_switch(add_, "--no-load", "do not load it now")


def _options_text() -> str:
    meanings = {each.name: f"{each.meaning} ({each.default_text})" for each in option_documents()}
    return f"engine options:\n{shape.glossary(meanings)}"


def _add_options(parser: argparse.ArgumentParser, text: str) -> None:
    parser.add_argument(
        "--option",
        type=option,
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help=f"{text}; may be given several times",
    )


def option(text: str) -> tuple[str, Any]:
    """Return a key and a value: JSON where it is valid JSON, else text."""
    key, separator, value = text.partition("=")
    if not separator or not key:
        raise argparse.ArgumentTypeError(f"{text!r} is not like KEY=VALUE")
    return key, option_value(value)


def add(arguments: argparse.Namespace) -> str:
    """Serve a folder with an exported OpenVINO model, and load it."""
    model = registry.add_model(
        arguments.folder,
        name=arguments.name or arguments.folder.resolve().name,
        device=arguments.device,
        options=dict(arguments.option),
        load=not arguments.no_load,
        **resource.values_of(arguments),
    )
    added = f"Added {model} from {model.folder}."
    if arguments.no_load:
        return f"{added} To load it: vinery model load {model}"
    return f"{added} Loading; see: vinery model show {model}"


def change(model: ServedModel, arguments: argparse.Namespace) -> str:
    values = resource.values_of(arguments)
    if arguments.option:
        options = model.options | dict(arguments.option)
        values["options"] = {key: value for key, value in options.items() if value != ""}
    MODELS.change(EVERYTHING, model, values)
    return f"{model} is changed." if values else f"{model} is unchanged."


def self_test(model: ServedModel, _: argparse.Namespace) -> int:
    """Returns 0 if the vision model distinguishes known pictures."""
    MODELS.act(EVERYTHING, MODELS.action("self-test"), model)
    deadline_s = time.monotonic() + _TEST_WITHIN_S
    while model.test_asked_at is not None:
        if time.monotonic() > deadline_s:
            text = f"{model} has no result after {_TEST_WITHIN_S:g} s. Is its node running?"
            raise shape.Failure(f"{text} See: vinery status")
        time.sleep(_POLL_S)
        model = resource.model_named(model.name)
    failure = model.status.picture_failure
    shape.print_line(f"{model}: {failure or 'passed'}")
    return int(bool(failure))


def show_log(model: ServedModel, arguments: argparse.Namespace) -> int:
    """Show and follow the log of a model's engine."""
    return logs.run_logs(
        argparse.Namespace(**vars(arguments) | {"model": model.name, "process": None})
    )


def show(model: ServedModel, arguments: argparse.Namespace) -> int:
    """Show a model, its state, its last error and log lines."""
    (model,) = MODELS.load([model])
    body = ServedModelSerializer(model, context={"access": EVERYTHING}).data
    if arguments.json:
        print(shape.json_of({**body, "log": engine_log(model.name)}))
        return 0
    shape.print_values(_lines(model))
    if model.status.last_error:
        print(f"\n{escaped(model.status.last_error, keep=chr(10))}")
    print(f"\n{engine_log_text(model.name, _NUM_LOG_LINES)}")
    return 0


def _lines(model: ServedModel) -> dict[str, object]:
    status = model.status
    # A model that was never loaded has no report of an engine.
    since = f", since {status.changed_at:%Y-%m-%d %H:%M:%S} UTC" if status.changed_at else ""
    engine = f"process {status.pid}, " if status.pid else ""
    others = {"memory": status.memory_text, "waiting": model.waiting_text}
    others["only on"] = ", ".join(model.host_labels)
    others["attempts"] = status.attempts_text
    return {
        "name": model,
        "state": f"{model.state_text}{since}",
        "folder": model.folder,
        "source": model.source_text or "the folder",
        "device": model.device,
        "options": json.dumps(model.options),
        "context": f"{status.max_context} tokens" if status.max_context else "unknown",
        "engine": f"{engine}restarts: {status.num_restarts}",
        **dict(map(_of_replica, status.replicas)),
        **{name: text for name, text in others.items() if text},
    }


def _of_replica(replica: Mapping[str, Any]) -> tuple[str, str]:
    name = " on ".join(filter(None, (f"replica {replica['replica']}", replica.get("host"))))
    text = f"{replica['state']} on {replica['device']}, restarts: {replica['num_restarts']}"
    reason = replica["error"].partition("\n")[0]
    return name, f"{text}. {reason}" if reason else text
