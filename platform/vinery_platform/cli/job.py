"""`vinery job`: the long work on models, such as pulling and converting."""

import argparse
from typing import Final

from vinery_accounts.base.names import escaped
from vinery_platform.cli import resource
from vinery_platform.cli.find import only
from vinery_platform.cli.resource import Option, RowCommands
from vinery_platform.cli.shape import Failure, print_line, subcommands
from vinery_serving.catalog.job_resource import MODEL_JOBS, progress_text
from vinery_serving.catalog.jobs import ModelJob
from vinery_serving.catalog.models import ServedModel
from vinery_serving.logs.reading import last_lines

_NUM_LOG_LINES: Final = 100
_FILTERS: Final = {
    "model_id": Option(
        "--model",
        metavar="NAME",
        help="only of this model",
        find=lambda name: only(ServedModel.objects.filter(name=name), f"No model {name}.").pk,
    ),
    "kind": Option(metavar="KIND"),
    "state": Option(metavar="STATE"),
}


def add_to(parser: argparse.ArgumentParser) -> None:
    actions = subcommands(parser)
    resource.add_list(
        actions,
        MODEL_JOBS,
        "List the jobs of models, the newest first.",
        _FILTERS,
        description="List the jobs of models, the newest first: pulling, converting and measuring.",
    )
    one = RowCommands(actions, MODEL_JOBS, _job, "id", "ID", "from `vinery job list`")
    one.add("show", show, "Show a job and its progress.")
    one.add_actions("pause", "resume", "cancel")
    one.add("log", show_log, "Print the last lines that a job has logged on this host.")


def show(job: ModelJob, _: argparse.Namespace) -> int:
    lines = {
        "job": job,
        "state": job.state_text,
        "progress": progress_text(job),
        "attempts": job.num_attempts,
        "error": job.error,
    }
    for name, value in lines.items():
        if value != "":
            print_line(f"{name + ':':<10}{value}")
    return 0


def show_log(job: ModelJob, _: argparse.Namespace) -> int:
    """Raises `Failure` without a log."""
    try:
        entries = last_lines(job.log_path, _NUM_LOG_LINES)
    except OSError:
        raise Failure(f"The {job} has logged nothing on this host.") from None
    for entry in entries:
        print_line(escaped(entry.text()))
    return 0


def _job(text: str) -> ModelJob:
    missing = f"There is no job {text}. See: vinery job list"
    if not text.isdecimal():
        raise Failure(missing)
    return only(ModelJob.objects.filter(pk=int(text)).select_related("model"), missing)
