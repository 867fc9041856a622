"""The tokens of pictures are reported for prompts that have any, and for no others."""

from __future__ import annotations

import json
from typing import Any

from tests.tables import table
from vinery_serving.core.events import Completed, Finished, FinishReason, Started, Usage
from vinery_serving.core.request import Endpoint

from .exchanges import COMPLETED_AT, answered, exchange, streamed

DETAILS = {
    Endpoint.CHAT: "prompt_tokens_details",
    Endpoint.COMPLETIONS: "prompt_tokens_details",
    Endpoint.RESPONSES: "input_tokens_details",
}


def ended(num_image_tokens: int) -> list[Any]:
    usage = Usage(20, 3, 1, num_image_tokens=num_image_tokens)
    return [Started(), Finished(0, FinishReason.STOP), Completed(usage, COMPLETED_AT)]


@table("endpoint", DETAILS)
def test_a_body_has_the_tokens_of_its_pictures(endpoint: Endpoint) -> None:
    for num, expected in ((16, 16), (0, None)):
        details = answered(exchange(endpoint), ended(num))["usage"][DETAILS[endpoint]]

        assert details.get("image_tokens") == expected
        assert details["cached_tokens"] == 3


@table("endpoint", DETAILS)
def test_a_stream_has_them_in_its_usage(endpoint: Endpoint) -> None:
    options = {} if endpoint is Endpoint.RESPONSES else {"stream_options": {"include_usage": True}}
    frames = streamed(exchange(endpoint, stream=True, **options), ended(16))
    events = [
        json.loads(line.removeprefix("data: "))
        for line in frames.decode().splitlines()
        if line.startswith("data: {")
    ]
    usages = [event.get("response", event).get("usage") for event in events]

    assert [usage[DETAILS[endpoint]]["image_tokens"] for usage in usages if usage] == [16]
