"""`vinery model bench`, `tune` and `speeds`: how fast models are on this host."""

import argparse
import time
from typing import Final

from django.core.exceptions import ValidationError

from vinery_accounts.resources.base import EVERYTHING
from vinery_platform.cli import resource
from vinery_platform.cli.find import only
from vinery_platform.cli.resource import Option, RowCommands
from vinery_platform.cli.shape import (
    Commands,
    Failure,
    add_json,
    json_of,
    print_line,
    print_note,
    print_rows,
)
from vinery_serving.catalog import speed_requests
from vinery_serving.catalog.jobs import JobState, ModelJob
from vinery_serving.catalog.models import ServedModel
from vinery_serving.catalog.resource import MODELS
from vinery_serving.catalog.speed import SpeedResult
from vinery_serving.catalog.speed_resource import SPEED_RESULTS, SpeedResultSerializer
from vinery_serving.catalog.tuning_facts import is_better, summary, trial_rows

_POLL_S: Final = 0.3
_TRIAL_HEADS: Final = ("trial", "gain", "by_streams", "same_answers", "kept")
_HEADS: Final = (
    *("streams", "output_tokens_per_s", "prompt_tokens_per_s", "first_token_s", "memory_mb"),
)


def add_to(actions: Commands, one: RowCommands) -> None:
    bench_ = one.add(
        "bench",
        bench,
        "Measure how fast a loaded model is on this host at 1, 4 and 16 streams, and keep the "
        "result.",
    )
    add_json(bench_)
    tune_ = one.add(
        "tune",
        tune,
        "Look for faster engine options, in trials beside the running engine, and show what each "
        "gave.",
    )
    tune_.add_argument(
        "--time-limit",
        type=float,
        default=900.0,
        metavar="S",
        help="no trial begins after so many seconds (default: %(default)g)",
    )
    tune_.add_argument(
        "--allow-other-answers",
        action="store_true",
        help="options that change greedy answers may win, such as another KV precision",
    )
    tune_.add_argument(
        "--apply", action="store_true", help="set the best options: an engine with them takes over"
    )
    add_json(tune_)
    one.add_actions("apply-tuning", done=lambda row, _: f"{row} has the options of its tuning.")
    resource.add_list(
        actions,
        SPEED_RESULTS,
        "List what has been measured, the newest first, by numbers of streams.",
        {"model_id": Option("--model", metavar="NAME", help="only of this model", find=_model_id)},
        name="speeds",
        has_num=True,
    )


def bench(model: ServedModel, arguments: argparse.Namespace) -> int:
    """Print the result. Raises `Failure` if the model cannot be measured."""
    try:
        job = speed_requests.begin(model)
    except ValidationError as error:
        raise Failure(" ".join(error.messages)) from error
    wait_for(job)
    result = SpeedResult.objects.filter(model=model).first()
    if result is None:
        raise Failure(f"The {job} has no result. See: vinery job show {job.pk}")
    if arguments.json:
        print(json_of(SpeedResultSerializer(result, context={"access": EVERYTHING}).data))
        return 0
    rows = [{**point, "memory_mb": point["memory_bytes"] >> 20} for point in result.points]
    print_rows(rows, _HEADS, as_json=False)
    if result.num_other_tokens:
        print_line(
            f"Clients used {result.num_other_tokens} tokens of this model meanwhile, which made "
            "the measured requests slower."
        )
    return 0


def tune(model: ServedModel, arguments: argparse.Namespace) -> int:
    """Print what each trial gave. Raises `Failure` if the model cannot be tuned."""
    try:
        job = speed_requests.begin_tuning(
            model,
            time_limit_s=arguments.time_limit,
            allow_other_answers=arguments.allow_other_answers,
        )
    except ValidationError as error:
        raise Failure(" ".join(error.messages)) from error
    wait_for(job)
    result = job.result
    if arguments.json:
        print(json_of(result))
    else:
        print_rows(list(trial_rows(result)), _TRIAL_HEADS, as_json=False)
        print_line(summary(result))
    if arguments.apply and is_better(result):
        model.refresh_from_db()
        MODELS.act(EVERYTHING, MODELS.action("apply-tuning"), model)
        print_note(f"{model} has these options now.")
    elif is_better(result):
        print_note(f"To set them: vinery model apply-tuning {model}")
    return 0


def wait_for(job: ModelJob) -> None:
    """Wait until a job ends, and show its stages. Raises `Failure` unless it is done. Ctrl-C leaves
    the job to the node."""
    stage = ""
    while job.is_unfinished:
        if job.stage != stage:
            stage = job.stage
            print_note(stage)
        time.sleep(_POLL_S)
        job.refresh_from_db()
    if job.state != JobState.DONE:
        raise Failure(job.error or f"The {job} is {job.state_text}.")


def _model_id(name: str) -> int:
    model_id: int = only(ServedModel.objects.filter(name=name), f"No model {name}.").pk
    return model_id
