"""`vinery model search`, `vinery model check` and `vinery model pull`: models of a hub."""

import argparse
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, get_args

from django.core.exceptions import ValidationError

from vinery_platform.cli.resource import add_command
from vinery_platform.cli.shape import Commands, Failure, add_json, json_of, print_line, print_rows
from vinery_serving.catalog import pulls
from vinery_serving.catalog.job_resource import progress_text
from vinery_serving.catalog.jobs import JobState, ModelJob
from vinery_serving.catalog.pulls import Judged
from vinery_serving.catalog.verdict_facts import verdict_facts
from vinery_serving.convert.options import Precision
from vinery_serving.hub.catalogue import find
from vinery_serving.hub.client import Hub
from vinery_serving.hub.errors import PullFailed
from vinery_serving.hub.memory_need import CONTEXT_TOKENS
from vinery_serving.hub.search import search
from vinery_serving.hub.verdict import Answer, Verdict, gigabytes

_POLL_S: Final = 0.5
_FOUND_HEADS: Final = ("name", "tag", "downloads")
_REPOSITORY_HELP: Final = (
    "a repository of the hub, such as OpenVINO/Qwen3-8B-int4-ov; a name from `vinery catalog "
    "list`; a URL of an archive (https://, s3://); or the path of a folder, a GGUF file or an "
    "archive, which is copied"
)


def add_to(actions: Commands, device_help: str) -> None:
    search_ = add_command(
        actions,
        "search",
        search_hub,
        "Search a hub for models.",
        description="Search a hub for models in OpenVINO's format by words. The most downloaded "
        "come first.",
    )
    search_.add_argument("text", metavar="TEXT", help="words of the name")
    search_.add_argument(
        "--all", action="store_true", help="also models that must be converted first"
    )
    add_json(search_)
    check_ = add_command(
        actions,
        "check",
        check,
        "Report whether a model of a hub will load here.",
        description="Report whether a model of a hub will load on this machine, before its weights "
        "are fetched. The exit status is 1 if it will not.",
    )
    _add_repository(check_, device_help)
    check_.add_argument(
        "--context",
        type=int,
        default=CONTEXT_TOKENS,
        metavar="TOKENS",
        help="the conversation that there should be memory for (default: %(default)s)",
    )
    add_json(check_)
    pull_ = add_command(
        actions,
        "pull",
        pull,
        "Fetch a model from a hub, and serve it.",
        description="Fetch a model from a hub, and serve it. A pull that was interrupted goes on "
        "where it was. A checkpoint is converted then. HF_ENDPOINT names another hub, and HF_TOKEN "
        "is for private and gated models.",
    )
    _add_repository(pull_, device_help)
    pull_.add_argument("--name", help="the name that clients use (default: that of the model)")
    pull_.add_argument(
        "--precision",
        choices=get_args(Precision),
        help="to which a checkpoint is converted (default: that of the check)",
    )
    pull_.add_argument("--no-serve", action="store_true", help="fetch it, and do not load it")
    pull_.add_argument("--yes", action="store_true", help="fetch it without a question")
    pull_.add_argument("--no-wait", action="store_true", help="do not show the progress")


def _add_repository(parser: argparse.ArgumentParser, device_help: str) -> None:
    parser.add_argument("repository", metavar="REPOSITORY", help=_REPOSITORY_HELP)
    parser.add_argument("--sha256", metavar="DIGEST", help="that the archive of a URL must have")
    parser.add_argument("--revision", help="a branch, a tag or a commit (default: main)")
    parser.add_argument(
        "--include",
        action="append",
        default=[],
        metavar="PATTERN",
        help="only files that match, such as '*Q4_K_M.gguf'; may be given several times",
    )
    parser.add_argument("--device", default="CPU", help=f"{device_help} (default: %(default)s)")


def search_hub(arguments: argparse.Namespace) -> int:
    """Print what matches. Raises `Failure`."""
    try:
        found = search(Hub.of_environment(), arguments.text, only_openvino=not arguments.all)
    except PullFailed as error:
        raise Failure(str(error)) from error
    print_rows([asdict(each) for each in found], _FOUND_HEADS, as_json=arguments.json)
    return 0


def check(arguments: argparse.Namespace) -> int:
    """Print the verdict. Returns 1 if the model will not load. Raises `Failure`."""
    verdict = _judged(arguments, context=arguments.context).verdict
    if verdict is None:
        raise Failure("An archive can be judged only when it is unpacked: pull it.")
    if arguments.json:
        print(json_of(as_body(verdict)))
    else:
        _print(verdict)
    return int(verdict.answer is Answer.NO)


def as_body(verdict: Verdict) -> dict[str, Any]:
    """Return the verdict as the management API shows it."""
    body = asdict(verdict)
    memory = body.pop("need") | {"total_bytes": verdict.need.total_bytes}
    del body["machine"]["engines"]
    return body | {"memory": memory}


def pull(arguments: argparse.Namespace) -> int:
    """Pull a model, and follow the job. Raises `Failure`."""
    try:
        shipped = pulls.add_shipped(
            arguments.repository,
            arguments.name,
            device=arguments.device,
            load=not arguments.no_serve,
        )
        if shipped is not None:
            print_line(f"{shipped} ships with Vinery, and is served from {shipped.folder}.")
            return 0
        judged = _judged(arguments)
        if judged.verdict is not None:
            _print(judged.verdict)
            _confirm(judged.verdict, is_sure=arguments.yes)
        job = pulls.begin(
            judged,
            arguments.name,
            device=arguments.device,
            load=not arguments.no_serve,
            precision=arguments.precision,
        )
    except ValidationError as error:
        raise Failure(" ".join(error.messages)) from error
    print_line(f"Pulling {job.model}. Progress: vinery job show {job.pk}")
    return 0 if arguments.no_wait else _follow(job)


def _judged(arguments: argparse.Namespace, **more: Any) -> Judged:
    what = arguments.repository
    try:
        return pulls.judge(
            str(Path(what).resolve()) if _is_path(what) else what,
            arguments.revision,
            arguments.include,
            machine=pulls.machine_for(arguments.device),
            sha256=arguments.sha256,
            **more,
        )
    except PullFailed as error:
        raise Failure(str(error)) from error


def _is_path(what: str) -> bool:
    """Whether it is a path, and not the name of a repository."""
    return what.startswith((".", "/", "~")) or (Path(what).exists() and find(what) is None)


def _print(verdict: Verdict) -> None:
    for name, value in verdict_facts(verdict):
        print_line(f"{name + ':':<10}{value}")
    for reason in verdict.reasons:
        print_line(reason)


def _confirm(verdict: Verdict, *, is_sure: bool) -> None:
    """Raises `Failure` unless the model will load and the administrator agrees."""
    if verdict.answer is Answer.NO:
        raise Failure(f"{verdict.repository} will not load here, so it is not fetched.")
    if is_sure or not sys.stdin.isatty():
        return
    if input(f"Fetch {gigabytes(verdict.size_bytes)}? [y/N] ").strip().lower() not in ("y", "yes"):
        raise Failure("Nothing was fetched.")


def _follow(job: ModelJob) -> int:
    """Print the progress to the end of the job. Ctrl-C leaves it running."""
    seen = ""
    try:
        while job.is_unfinished and job.state != JobState.PAUSED:
            text = progress_text(job) or job.state_text
            if text != seen:
                print_line(seen := text)
            time.sleep(_POLL_S)
            job.refresh_from_db()
    except KeyboardInterrupt:
        print_line(f"The pull goes on. To end it: vinery job cancel {job.pk}")
        return 0
    if job.state != JobState.DONE:
        raise Failure(job.error or f"The pull is {job.state}.")
    print_line(f"Pulled {job.model} to {job.result['folder']}. See: vinery model show {job.model}")
    return 0
