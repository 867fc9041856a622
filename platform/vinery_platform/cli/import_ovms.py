"""`vinery import-ovms`: serves the models of an OpenVINO Model Server, with a report."""

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from django.core.exceptions import ValidationError

from vinery_platform.cli.shape import Failure, add_switch, failing_on, print_line
from vinery_serving.media.tables import ovms as media
from vinery_serving.models import registry
from vinery_serving.models.models import ServedModel
from vinery_serving.models.ovms.sources import (
    GRAPH_NAMES,
    OF_MODELS,
    Found,
    Roots,
    Servable,
    UnreadableSource,
)
from vinery_serving.models.ovms.translation import Translation, lost_flags, read

_TASKS: Final = ("chat", "embeddings", "rerank")
_EPILOG: Final = """for example:
  vinery import-ovms /models/config.json --dry-run
  vinery import-ovms --command "ovms --model_path /models/qwen --model_name qwen --cache_size 4"
  vinery import-ovms compose.yaml --map /models=/srv/models"""


def add_import_ovms(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "path",
        nargs="?",
        type=Path,
        metavar="PATH",
        help="a config.json, a graph.pbtxt, a folder with either, a model repository, or a script, "
        "service or compose file with the command line",
    )
    parser.add_argument(
        "--command", dest="command_line", metavar="TEXT", help="the command line itself"
    )
    parser.add_argument(
        "--map",
        action="append",
        default=[],
        type=_pair,
        metavar="INSIDE=OUTSIDE",
        help="a folder of its container, and where it is here; may be given several times",
    )
    add_switch(parser, "--no-load", "do not load the models now")
    add_switch(parser, "--dry-run", "report, and change nothing")


def _pair(text: str) -> tuple[str, Path]:
    inside, separator, outside = text.partition("=")
    if not separator or not inside.startswith("/"):
        raise argparse.ArgumentTypeError(f"{text!r} is not like /models=/srv/models")
    return inside, Path(outside).expanduser().resolve()


def run_import_ovms(arguments: argparse.Namespace) -> int:
    """Serve the models of an OpenVINO Model Server with the same names, folders, devices and
    options, and allow the same media. Models and rules that exist stay as they are, so a second run
    changes nothing. The exit status is 0 if all was taken over, and 2 if something was not."""
    roots = Roots(tuple(arguments.map))
    if (arguments.path is None) == (arguments.command_line is None):
        raise Failure("Name a PATH, or a command line with --command.")
    with failing_on(UnreadableSource):
        found, models = read(arguments.path, arguments.command_line or "", roots)
    results = [
        _import_model(*each, load=not arguments.no_load, is_dry=arguments.dry_run)
        for each in zip(found.servables, models, strict=True)
    ]
    results += list(_import_media(found, is_dry=arguments.dry_run))
    lost = list(lost_flags(found.server, OF_MODELS | GRAPH_NAMES.keys()))
    if lost:
        print_line("The server")
        _print_lines("no counterpart", lost)
    if not results and not lost:
        print_line("This model server serves nothing.")
    return 0 if all(results) else 2


def _import_model(servable: Servable, model: Translation, *, load: bool, is_dry: bool) -> bool:
    """Print what becomes of a model. Returns whether Vinery serves it."""
    unknown = "" if servable.task in _TASKS else f"Vinery does not import {servable.task}."
    if failure := servable.failure or unknown:
        print_line(f"{servable.name} is not taken over: {failure}")
        return False
    try:
        state = _store(model, load=load, is_dry=is_dry)
    except ValidationError as error:
        state = ""
        print_line(f"{model.name} is not taken over: {' '.join(error.messages)}")
    else:
        print_line(f"{model.name} {state} ({servable.source}).")
    _print_lines("taken over", model.taken)
    _print_lines("changed", model.changed)
    _print_lines("no counterpart", model.lost)
    return bool(state)


def _store(model: Translation, *, load: bool, is_dry: bool) -> str:
    """Return what happened, in words. Raises ValidationError."""
    values: dict[str, Any] = {"device": model.device, "options": model.options, "name": model.name}
    folder = str(model.folder)
    if (known := ServedModel.objects.filter(name=model.name).values().first()) is not None:
        is_same = known | values | {"folder": folder} == known
        return f"is served already{'' if is_same else ', with other settings: it stays'}"
    if is_dry:
        ServedModel(**values, folder=folder).full_clean()
        return f"would be served from {model.folder} on {model.device}"
    registry.add_model(model.folder, **values, load=load)
    return f"is served from {model.folder} on {model.device}"


def _print_lines(head: str, lines: Sequence[str]) -> None:
    for line in lines:
        print_line(f"  {head + ':':<16}{line}")


def _import_media(found: Found, *, is_dry: bool) -> Iterator[bool]:
    rules = media.rules_of(found.server)
    if not rules:
        return
    if is_dry:
        print_line(f"Media would be allowed: {', '.join(map(str, rules))}.")
        yield True
        return
    try:
        new, known = media.store(rules)
    except ValidationError as error:
        print_line(f"Media rules are not taken over: {' '.join(error.messages)}")
        yield False
        return
    were = f" There were rules already: {', '.join(known)}." if known else ""
    print_line(f"Media are allowed: {', '.join(new) or 'nothing new'}.{were}")
    yield True
