"""The handling options of a request reach the engine."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from serving.core.errors import InvalidRequest, UnsupportedParameter
from serving.core.request import BeamSearch, Endpoint, GenerationRequest, Handling, RawPrompts
from serving.flow.attempt import attempt
from serving.flow.candidates import check_beam_search
from serving.flow.directory import Engine
from serving.flow.meter import Meter
from serving.flow.prepared import PreparedRequest
from serving.prompting.assets import Prompt
from serving.transport.messages import Submit
from tests.fakes.engine import InMemoryEngine
from tests.flow.test_attempt import SUBMIT
from tests.flow.tiny_chat import new_engine, prepared_of


def asking(handling: Handling, n: int = 1) -> GenerationRequest:
    prompts = RawPrompts(("Once",))
    return GenerationRequest(Endpoint.COMPLETIONS, "m", prompts, n=n, handling=handling)


async def submits_of(tmp_path: Path, handling: Handling, n: int = 1) -> tuple[Submit, ...]:
    """The submissions to an engine whose process does not run."""
    return (await prepared_of(new_engine(tmp_path), asking(handling, n))).submits


async def test_samples_wait_with_the_priority_of_their_request(tmp_path: Path) -> None:
    submits = await submits_of(tmp_path, Handling(priority=4), n=3)

    assert [submit.priority for submit in submits] == [4, 4, 4]


async def test_the_engine_gets_equal_keys_for_equal_salts_but_not_the_salt(tmp_path: Path) -> None:
    keys = [
        (await submits_of(tmp_path, Handling(cache_salt=salt)))[0].cache_key
        for salt in (None, "one", "one", "two")
    ]

    assert keys[0] is None
    assert keys[1] == keys[2] != keys[3]
    assert all(key is None or (len(key) == 32 and b"one" not in key) for key in keys)


def test_a_salt_cannot_go_with_no_repeat_ngram_size() -> None:
    request = replace(
        asking(Handling(cache_salt="one")), beams=BeamSearch(2, no_repeat_ngram_size=1)
    )

    with pytest.raises(InvalidRequest, match="Leave one of them out") as refusal:
        check_beam_search(request)

    assert refusal.value.param == "cache_salt"
    check_beam_search(replace(request, beams=BeamSearch(2)))


async def test_a_salt_that_has_no_effect_is_refused() -> None:
    engine = cast(Engine, InMemoryEngine())
    request = asking(Handling(cache_salt="one"))
    prepared = PreparedRequest(request, engine, Meter(), "t", (Prompt((1,)),), (SUBMIT,), 1)

    with pytest.raises(UnsupportedParameter, match="enable_prefix_caching off") as refusal:
        await anext(attempt(prepared, None))

    assert refusal.value.param == "cache_salt"
