"""Defaults and limits of parameters that an administrator sets for a model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.flow.tiny_chat import HELLO, RAW, new_engine, prepared_of
from tests.tables import table
from vinery_serving.core.errors import InvalidRequest
from vinery_serving.core.request import BeamSearch, GenerationRequest, Sampling, Stopping
from vinery_serving.engine.option_parsing import parse_options
from vinery_serving.flow.directory import Engine
from vinery_serving.flow.parameters import defaults_of
from vinery_serving.prompting.folder import GenerationDefaults
from vinery_serving.transport.messages import SamplingParams


def served(home: Path, **options: Any) -> Engine:
    parsed = parse_options(options)
    return new_engine(home, **{name: getattr(parsed, name) for name in options})


async def sampling_of(engine: Engine, **asked: Any) -> SamplingParams:
    prepared = await prepared_of(engine, replace(HELLO, sampling=Sampling(**asked)))
    return prepared.submits[0].sampling


async def test_a_default_holds_for_requests_that_name_no_value(tmp_path: Path) -> None:
    engine = served(tmp_path, defaults={"temperature": 0.3, "top_k": 7})

    assert (await sampling_of(engine)).temperature == 0.3
    assert (await sampling_of(engine, temperature=1.5)).temperature == 1.5
    assert (await sampling_of(engine, temperature=1.5)).top_k == 7


def test_a_default_comes_before_that_of_the_folder() -> None:
    folder = GenerationDefaults(do_sample=False, temperature=0.9, top_p=0.8, max_new_tokens=5)
    options = parse_options({"defaults": {"temperature": 0.3, "max_tokens": 9}})

    assert defaults_of(options, folder) == GenerationDefaults(
        do_sample=True, temperature=0.3, top_p=0.8, max_new_tokens=9
    )
    assert defaults_of(parse_options({}), folder) == folder


@table(
    "stopping, expected",
    [
        (Stopping(), 9),
        (Stopping(default_max_tokens=16), 9),
        (Stopping(max_tokens=3), 3),
        (Stopping(max_tokens=12), 12),
    ],
)
async def test_a_default_of_output_tokens_comes_before_that_of_the_endpoint(
    tmp_path: Path, stopping: Stopping, expected: int
) -> None:
    engine = served(tmp_path, defaults={"max_tokens": 9})

    prepared = await prepared_of(engine, replace(RAW, stopping=stopping))

    assert prepared.submits[0].max_new_tokens == expected


LIMITS = {
    "minima": {"temperature": 0.2, "repetition_penalty": 1.0},
    "maxima": {"temperature": 1.0, "top_k": 50},
}


@table(
    "asked, message",
    [
        ({"temperature": 1.5}, "`temperature` must be at most 1, the limit of the model tiny-chat"),
        ({"temperature": 0.0}, "`temperature` must be at least 0.2, the limit of the model"),
        ({"top_k": 51}, "`top_k` must be at most 50"),
        ({"top_k": -1}, "`top_k` must be at most 50"),
        ({"repetition_penalty": 0.9}, "`repetition_penalty` must be at least 1"),
    ],
)
async def test_a_value_outside_of_the_limits_is_refused_by_its_name(
    tmp_path: Path, asked: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidRequest, match=message) as refusal:
        await sampling_of(served(tmp_path, **LIMITS), **asked)

    assert refusal.value.param == next(iter(asked))


async def test_a_value_that_no_request_names_is_moved_into_the_limits(tmp_path: Path) -> None:
    greedy = served(tmp_path, defaults={"temperature": 0.2}, **LIMITS)

    assert (await sampling_of(served(tmp_path, **LIMITS))).temperature <= 1.0
    assert (await sampling_of(greedy)).temperature == 0.2
    assert (await sampling_of(greedy)).top_k == 50
    allowed = await sampling_of(greedy, temperature=0.7, top_k=20)
    assert (allowed.temperature, allowed.top_k) == (0.7, 20)


async def test_a_beam_search_has_no_limits_of_sampling(tmp_path: Path) -> None:
    beams: GenerationRequest = replace(HELLO, beams=BeamSearch(width=2))

    assert (await prepared_of(served(tmp_path, **LIMITS), beams)).submits[0].beams is not None
