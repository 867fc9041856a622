"""A model's speed in the console: its card, earlier runs, and the search for faster options."""

from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from tests.models.rows.conftest import LIST, address, page, text_of
from vinery_serving.models import job_requests, registry
from vinery_serving.models.engine_status import EngineState, EngineStatus
from vinery_serving.models.job_requests import Tune, take_result
from vinery_serving.models.job_rows import JobKind, JobState, ModelJob, SpeedResult
from vinery_serving.models.models import ServedModel

pytestmark = pytest.mark.django_db
BEST = {"prompt_lookup": True}


def a_tuning(model: ServedModel, best: dict[str, Any] = BEST) -> ModelJob:
    job = job_requests.tune(model, Tune(time_limit_s=30))
    trials = [
        {"what": "prompt lookup", "gain": 1.5, "gains": {"1": 1.6, "4": 1.4}, "is_kept": True},
        {"what": "2 threads", "gain": None, "gains": {}, "error": "It did not load."},
    ]
    usual = {"same_answers": 1.0, "is_kept": False, "error": ""}
    result = {"present": {}, "trials": [usual | each for each in trials], "best": best}
    result |= {"best_gain": 1.5, "is_complete": False}
    assert take_result(job, result) == ""
    return job


def speed_page(client: Client, model: ServedModel) -> str:
    return text_of(client.get(address(model, "speed/")))


def tune_page(client: Client, model: ServedModel) -> str:
    return text_of(client.get(address(model, "tune/")))


def test_a_search_begins_with_the_form_and_is_shown(root: Client, chat: ServedModel) -> None:
    assert address(chat, "tune/") in speed_page(root, chat)
    assert "has not been tuned yet" in tune_page(root, chat)
    text = text_of(root.post(address(chat, "apply-tuning/"), follow=True))
    assert "chat has not been tuned yet. See: vinery model tune --help" in text

    form = {"time_limit_s": "60", "allow_other_answers": "on"}
    text = text_of(root.post(address(chat, "tune/"), form, follow=True))
    job = ModelJob.objects.get()
    assert (job.parameters["time_limit_s"], job.parameters["allow_other_answers"]) == (60, True)
    assert "The search begins." in text and "Waiting" in text
    ModelJob.objects.update(state=JobState.RUNNING, stage="trial 2: prompt lookup")
    text = tune_page(root, chat)
    assert "trial 2: prompt lookup" in text and f"/jobs/{job.pk}/cancel/" in text


def test_trials_are_shown_and_the_best_set_until_a_change(root: Client, chat: ServedModel) -> None:
    a_tuning(chat)
    text = tune_page(root, chat)
    for expected in ("Prompt lookup", "1.50", "1: 1.6", "It did not load.", "Among the best"):
        assert expected in text
    assert "The time ended before all settings were tried." in text
    assert 'id="set"' in text

    text = text_of(root.post(address(chat, "apply-tuning/?from=tune"), follow=True))
    chat.refresh_from_db()
    assert chat.options == BEST
    assert "The best options are set." in text and 'id="set"' not in text

    a_tuning(chat)
    ServedModel.objects.update(options={"max_running": 2})
    text = tune_page(root, chat)
    assert "has changed since" in text and 'id="set"' not in text

    text = text_of(root.post(address(chat, "apply-tuning/?from=tune"), follow=True))
    assert "has changed since it was tuned" in text


def test_without_a_better_option_there_is_nothing_to_set_and_a_failed_search_has_a_reason(
    root: Client, chat: ServedModel
) -> None:
    a_tuning(chat, best={})
    text = tune_page(root, chat)
    assert "No trial was clearly faster" in text and 'id="set"' not in text
    a_tuning(chat)
    job = job_requests.tune(chat, Tune(time_limit_s=30))
    ModelJob.objects.filter(pk=job.pk).update(state=JobState.FAILED, error="Trials need memory.")
    text = tune_page(root, chat)
    assert "Trials need memory." in text and "Prompt lookup" in text


def test_models_that_generate_nothing_have_no_speed_card(root: Client) -> None:
    model = registry.add_model(Path("tiny-embed"), name="embed")
    EngineStatus.objects.create(model=model, state=EngineState.READY)
    text = speed_page(root, model)
    assert "do-tune" not in text and "do-bench" not in text
    for action in ("bench/", "tune/"):
        text = text_of(root.post(address(model, action), {"time_limit_s": "60"}, follow=True))
        assert "Speed is measured of models that generate text." in text
    assert not ModelJob.objects.exists()


# -- The log of a job


def test_the_log_of_a_job_is_shown(root: Client, chat: ServedModel) -> None:
    """How a log is followed: see `test_engine_log.py`."""
    job = a_tuning(chat)
    log = f"{LIST}jobs/{job.pk}/log/"
    assert log in page(root, chat) and log in speed_page(root, chat)
    assert "has logged nothing" in text_of(root.get(log))
    job.log_path.parent.mkdir(parents=True, exist_ok=True)
    job.log_path.write_text("one\n")
    assert "one" in text_of(root.get(log))


# -- The speed card


def a_result(model: ServedModel, output_tokens_per_s: float, **values: Any) -> SpeedResult:
    same = {"prompt_tokens_per_s": 900.0, "first_token_s": 0.25, "memory_bytes": 300_000_000}
    points = [
        {**same, "streams": streams, "output_tokens_per_s": output_tokens_per_s * streams}
        for streams in (1, 4)
    ]
    usual = {"folder": model.folder, "device": "CPU", "device_name": "A processor"}
    usual |= {"versions": {"vinery": "1.0", "openvino": "2026.4"}, "num_prompt_tokens": 256}
    usual |= {"num_output_tokens": 64, "num_other_tokens": 0, "points": points}
    return SpeedResult.objects.create(model=model, **(usual | values))


def test_a_ready_model_is_measured_once_at_a_time(root: Client, chat: ServedModel) -> None:
    text = text_of(root.post(address(chat, "bench/"), follow=True))
    assert "Measuring chat." in text
    assert ModelJob.objects.get().kind == JobKind.BENCH
    text = text_of(root.post(address(chat, "bench/"), follow=True))
    assert "has a job of this kind" in text

    assert "do-bench" in speed_page(root, chat)
    EngineStatus.objects.update(state=EngineState.FAILED)
    assert "do-bench" not in speed_page(root, chat)


def test_the_last_measurement_is_a_table(root: Client, chat: ServedModel) -> None:
    assert "chat has not been measured yet." in speed_page(root, chat)
    a_result(chat, 52.25, num_other_tokens=12)
    text = speed_page(root, chat)
    for expected in ("52.2", "209.0", "250 ms", "300 MB", "A processor", "openvino 2026.4"):
        assert expected in text
    assert "Clients used 12 tokens" in text


def test_the_list_of_models_shows_the_last_speed_of_one_stream(
    root: Client, alice: Client, chat: ServedModel
) -> None:
    assert "tokens/s" not in text_of(root.get(LIST))
    for speed in (60.0, 55.0):
        a_result(chat, speed)
    text = text_of(root.get(LIST))
    assert "55.0 tokens/s" in text and "60.0 tokens/s" not in text
    assert f'role="group" aria-label="What to do with {chat.name}"' in text
    assert "tokens/s" not in text_of(alice.get(LIST))
