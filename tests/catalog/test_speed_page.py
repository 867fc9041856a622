"""A model's page in the console has its speed card: a button, a plot of earlier runs, a table."""

from typing import Any

import pytest
from django.test import Client

from tests.catalog.conftest import address, page, text_of
from vinery_serving.models.engine_status import EngineState, EngineStatus
from vinery_serving.models.job_rows import JobKind, ModelJob, SpeedResult
from vinery_serving.models.models import ServedModel

pytestmark = pytest.mark.django_db


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

    EngineStatus.objects.update(state=EngineState.FAILED)
    assert "do-bench" not in page(root, chat)


def test_measurements_are_a_table_and_a_plot_of_later_ones(root: Client, chat: ServedModel) -> None:
    a_result(chat, 52.25, num_other_tokens=12)
    text = page(root, chat)
    for expected in ("52.2", "209.0", "250 ms", "300 MB", "A processor", "openvino 2026.4"):
        assert expected in text
    assert "Clients used 12 tokens" in text
    assert "<svg" not in text.partition('id="speed"')[2].partition("</section>")[0]
    for speed in (60.0, 55.0):
        a_result(chat, speed)
    section = page(root, chat).partition('id="speed"')[2].partition("</section>")[0]
    assert section.count("<svg") == 3
    assert section.count("<polyline") == 3 * 2  # for each number of streams
    assert "4 streams: 240" in section
    assert "Output tokens per second of the last 3 measurements" in section
