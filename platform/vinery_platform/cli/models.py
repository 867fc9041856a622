"""`vinery alias` and `job`, and the commands of `vinery model` that begin jobs."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from vinery_accounts.base.names import escaped
from vinery_accounts.resources.base import EVERYTHING
from vinery_accounts.resources.fields import serializer_of
from vinery_platform.cli import resource, shape
from vinery_serving.models import job_requests
from vinery_serving.models.convert.checkpoint import ConvertOptions
from vinery_serving.models.hub.errors import PullFailed
from vinery_serving.models.hub.machine import CONTEXT_TOKENS
from vinery_serving.models.hub.verdict import Answer, gigabytes
from vinery_serving.models.hub_resource import LoadVerdictSerializer
from vinery_serving.models.job_resource import (
    MODEL_JOBS,
    SPEED_RESULTS,
    SpeedResultSerializer,
    is_better,
    summary,
    trial_rows,
)
from vinery_serving.models.job_rows import JobState, ModelJob, SpeedResult
from vinery_serving.models.models import ServedModel
from vinery_serving.models.resource import MODEL_ALIASES, MODELS, targets_text
from vinery_serving.processes.logs.reading import last_lines

# 25 ms of each command over models, most of which ask no hub.
if TYPE_CHECKING:
    from vinery_serving.models import pulls
    from vinery_serving.models.hub.verdict import Verdict

# -- Aliases


def add_alias(parser: argparse.ArgumentParser) -> None:
    one = resource.add_resource(parser, MODEL_ALIASES, without=("change",))
    put_ = shape.add_command(one.actions, "set", set_alias)
    put_.add_argument("name", metavar="NAME", help="the name that clients send")
    text = "a served model; without a weight: 1"
    put_.add_argument("targets", metavar="MODEL[=WEIGHT]", type=target, nargs="+", help=text)


def target(text: str) -> tuple[str, int]:
    name, separator, weight = text.partition("=")
    if separator and not weight.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not like MODEL=90")
    return name, int(weight) if separator else 1


def set_alias(arguments: argparse.Namespace) -> str:
    """Let a name stand for a model, or for several by weights. After `vinery alias set chat
    qwen-a=90 qwen-b=10`, nine of ten requests for chat go to qwen-a. A model with the weight 0
    answers only if no other can. The former models of the name are replaced."""
    values = {"targets": dict(arguments.targets)}
    row = resource.put(MODEL_ALIASES, {"name": arguments.name}, values)
    return f"{row} stands for {targets_text(row.targets)}."


# -- Jobs

_NUM_LOG_LINES: Final = 100
_POLL_S: Final = 0.3


def add_job(parser: argparse.ArgumentParser) -> None:
    one = resource.add_resource(parser, MODEL_JOBS, "pk", "ID", "from `vinery job list`")
    one.add("show", show_job)
    one.add("log", show_log)


def show_job(job: ModelJob, _: argparse.Namespace) -> int:
    """Show a job and its progress."""
    lines = {"job": job, "state": job.state_text, "progress": job.progress}
    lines |= {"attempts": job.num_attempts, "error": job.error}
    shape.print_values({name: value for name, value in lines.items() if value != ""})
    return 0


def show_log(job: ModelJob, _: argparse.Namespace) -> int:
    """Print the last lines that a job has logged on this host."""
    try:
        entries = last_lines(job.log_path, _NUM_LOG_LINES)
    except OSError:
        raise shape.Failure(f"The {job} has logged nothing on this host.") from None
    for entry in entries:
        shape.print_line(escaped(entry.text()))
    return 0


def wait_for(
    job: ModelJob, show: Callable[[str], None], text_of: Callable[[ModelJob], str]
) -> None:
    """Show what a job does until it ends or is paused. Raises `Failure` unless it is done."""
    seen = ""
    while job.is_unfinished and job.state != JobState.PAUSED:
        if (text := text_of(job)) not in (seen, ""):
            show(seen := text)
        time.sleep(_POLL_S)
        job.refresh_from_db()
    if job.state != JobState.DONE:
        raise shape.Failure(job.error or f"The {job} is {job.state_text}.")


# -- Models of hubs, and checkpoints

_OF_NEW_MODELS: Final = ("name", "device", "is_loaded")
_HUB_WITHIN_S: Final = 600.0  # a page would not wait so long
_OPTIONS: Final = {
    "sha256": resource.Option(metavar="DIGEST"),
    "include": resource.Option(metavar="PATTERN"),
    "context": resource.Option(metavar="TOKENS"),
}


def add_files(actions: shape.Commands) -> None:
    search_ = _add_job_command(actions, "search", search_hub, "text", "TEXT", has_options=False)
    shape.add_switch(search_, "--all", "also models that must be converted first")
    shape.add_json(search_)
    shape.add_json(_add_job_command(actions, "check", check, "repository", "REPOSITORY"))
    loaded = {
        "is_loaded": resource.Option("--serve", help="load it when it is there (default: yes)")
    }
    pull_ = _add_job_command(actions, "pull", pull, "repository", "REPOSITORY", loaded)
    shape.add_switch(pull_, "--yes", "fetch it without a question")
    shape.add_switch(pull_, "--no-wait", "do not show the progress")
    loaded = {
        "is_loaded": resource.Option("--load", help="load it when it is converted (default: yes)")
    }
    convert_ = _add_job_command(actions, "convert", convert, "folder", "FOLDER", loaded)
    fields = serializer_of(ConvertOptions)().fields
    resource.add_fields(convert_, fields, {}, fields)


def _add_job_command(
    actions: shape.Commands,
    name: str,
    run: Callable[[argparse.Namespace], int | str],
    positional: str,
    metavar: str,
    options: Mapping[str, resource.Option] | None = None,
    *,
    has_options: bool = True,
) -> argparse.ArgumentParser:
    """Add a command with the parameters of an action of the list of models."""
    action = MODELS.action(name)
    parser = shape.add_command(actions, name, run, action.help)
    fields: Any = action.serializer().fields
    help_text = str(fields[positional].help_text).replace("%", "%%")
    parser.add_argument(positional, metavar=metavar, help=help_text)
    if has_options:
        names = [each for each in fields if each not in (positional, "options")]
        resource.add_fields(parser, fields, {**_OPTIONS, **(options or {})}, names)
    return parser


def search_hub(arguments: argparse.Namespace) -> int:
    from vinery_serving.models.hub.client import Hub, search

    with shape.failing_on(PullFailed):
        found = search(Hub.of_environment(), arguments.text, only_openvino=not arguments.all)
    heads = ("name", "tag", "downloads")
    shape.print_rows([asdict(each) for each in found], heads, as_json=arguments.json)
    return 0


def check(arguments: argparse.Namespace) -> int:
    """Returns 1 if the model will not load."""
    asked = job_requests.Check(**_asked("check", arguments))
    verdict = _judged(asked, asked.context).verdict
    if verdict is None:
        raise shape.Failure("An archive can be judged only when it is unpacked: pull it.")
    if arguments.json:
        print(shape.json_of(LoadVerdictSerializer(verdict).data))
    else:
        _print(verdict)
    return int(verdict.answer is Answer.NO)


def _asked(name: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the parameters of a command about a repository. A path becomes absolute."""
    from vinery_serving.models.hub.catalogue import find

    what = arguments.repository
    is_path = what.startswith((".", "/", "~")) or (Path(what).exists() and find(what) is None)
    arguments.field_repository = str(Path(what).expanduser().resolve()) if is_path else what
    return dict(resource.parameters_of(MODELS.action(name), arguments))


def _judged(asked: job_requests.Repository, context: int = CONTEXT_TOKENS) -> pulls.Judged:
    from vinery_serving.models import pulls

    with shape.failing_on(PullFailed):
        return pulls.look(asked, context, within_s=_HUB_WITHIN_S)


def _print(verdict: Verdict) -> None:
    from vinery_serving.models import pulls

    shape.print_values(dict(pulls.facts_of(verdict)))
    for reason in verdict.reasons:
        shape.print_line(reason)


def pull(arguments: argparse.Namespace) -> int:
    from vinery_serving.models import pulls

    asked = job_requests.Pull(**_asked("pull", arguments))
    shipped = pulls.add_shipped(
        asked.repository, asked.name, device=asked.device, load=asked.is_loaded
    )
    if shipped is not None:
        shape.print_line(f"{shipped} ships with Vinery, and is served from {shipped.folder}.")
        return 0
    judged = _judged(asked)
    if judged.verdict is not None:
        _print(judged.verdict)
        _confirm(judged.verdict, is_sure=arguments.yes)
    job = pulls.pull(asked, judged)
    shape.print_line(f"Pulling {job.model}. Progress: vinery job show {job.pk}")
    if arguments.no_wait:
        return 0
    try:
        wait_for(job, shape.print_line, lambda job: job.progress or job.state_text)
    except KeyboardInterrupt:  # the job runs on
        shape.print_line(f"The pull goes on. To end it: vinery job cancel {job.pk}")
        return 0
    shape.print_line(
        f"Pulled {job.model} to {job.result['folder']}. See: vinery model show {job.model}"
    )
    return 0


def _confirm(verdict: Verdict, *, is_sure: bool) -> None:
    """Raises `Failure` unless the model will load and the administrator agrees."""
    if verdict.answer is Answer.NO:
        raise shape.Failure(f"{verdict.repository} will not load here, so it is not fetched.")
    if is_sure or not sys.stdin.isatty():
        return
    if input(f"Fetch {gigabytes(verdict.size_bytes)}? [y/N] ").strip().lower() not in ("y", "yes"):
        raise shape.Failure("Nothing was fetched.")


def convert(arguments: argparse.Namespace) -> str:
    folder, given = Path(arguments.folder).resolve(), resource.values_of(arguments)
    options = {name: value for name, value in given.items() if name not in _OF_NEW_MODELS}
    values = {name: value for name, value in given.items() if name in _OF_NEW_MODELS}
    values |= {"folder": str(folder), "name": given.get("name", folder.name), "options": options}
    job = job_requests.convert(job_requests.Conversion(**values))
    see = f"Progress: vinery job show {job.pk}; log: vinery job log {job.pk}"
    return f"Converting for {job.model}. {see}"


# -- Speed

_TRIAL_HEADS: Final = ("trial", "gain", "by_streams", "same_answers", "kept")
_SPEED_HEADS: Final = (
    *("streams", "output_tokens_per_s", "prompt_tokens_per_s", "first_token_s", "memory_mb"),
)


def add_speed(actions: shape.Commands, one: resource.RowCommands) -> None:
    shape.add_json(one.add_action(MODELS.action("bench"), bench))
    tune_ = one.add_action(MODELS.action("tune"), tune)
    shape.add_switch(tune_, "--apply", "set the best options: an engine with them takes over")
    shape.add_json(tune_)
    one.add_action(MODELS.action("apply-tuning"))
    resource.add_list(actions, SPEED_RESULTS, name="speeds")


def bench(model: ServedModel, arguments: argparse.Namespace) -> int:
    job = job_requests.measure(model)
    wait_for(job, shape.print_note, lambda job: job.stage)
    result = SpeedResult.objects.filter(model=model).first()
    if result is None:
        raise shape.Failure(f"The {job} has no result. See: vinery job show {job.pk}")
    if arguments.json:
        print(shape.json_of(SpeedResultSerializer(result, context={"access": EVERYTHING}).data))
        return 0
    rows = [{**point, "memory_mb": point["memory_bytes"] >> 20} for point in result.points]
    shape.print_rows(rows, _SPEED_HEADS, as_json=False)
    if result.num_other_tokens:
        text = f"Clients used {result.num_other_tokens} tokens of this model meanwhile, which made"
        shape.print_line(f"{text} the measured requests slower.")
    return 0


def tune(model: ServedModel, arguments: argparse.Namespace) -> int:
    asked = job_requests.Tune(**resource.parameters_of(MODELS.action("tune"), arguments))
    job = job_requests.tune(model, asked)
    wait_for(job, shape.print_note, lambda job: job.stage)
    result = job.result
    if arguments.json:
        print(shape.json_of(result))
    else:
        shape.print_rows(list(trial_rows(result)), _TRIAL_HEADS, as_json=False)
        shape.print_line(summary(result))
    if arguments.apply and is_better(result):
        model.refresh_from_db()
        MODELS.act(EVERYTHING, MODELS.action("apply-tuning"), model)
        shape.print_note(f"{model} has these options now.")
    elif is_better(result):
        shape.print_note(f"To set them: vinery model apply-tuning {model}")
    return 0
