"""Values that are decided and requests that are refused before an engine is needed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.flow.tiny_chat import HELLO, RAW, ids_of, new_engine, prepared_of
from tests.tables import table
from vinery_serving.core.errors import ContextTooLong, InvalidRequest, UnsupportedParameter
from vinery_serving.core.request import (
    BeamSearch,
    GenerationRequest,
    Grammar,
    GrammarKind,
    RawPrompts,
    SpeculativeDecoding,
    Stopping,
    Tool,
    ToolChoice,
    ToolMode,
)
from vinery_serving.engine.option_groups import CacheEviction
from vinery_serving.flow.directory import Engine
from vinery_serving.transport.messages import SpeculationSpec

NUM_RAW = len(ids_of("Hi there"))


async def test_samples_of_one_request_have_seeds_of_their_own(engine: Engine) -> None:
    request = replace(HELLO, n=3, sampling=replace(HELLO.sampling, seed=5, temperature=1.0))

    prepared = await prepared_of(engine, request)

    seeds = [submit.sampling.seed for submit in prepared.submits]
    assert seeds[0] == 5
    assert len(set(seeds)) == 3


async def test_without_a_seed_one_is_drawn(engine: Engine) -> None:
    first, second = await prepared_of(engine), await prepared_of(engine)

    assert first.submits[0].sampling.seed != second.submits[0].sampling.seed


async def max_new_tokens(engine: Engine, request: GenerationRequest = RAW, **stopping: Any) -> int:
    prepared = await prepared_of(engine, replace(request, stopping=Stopping(**stopping)))
    return prepared.submits[0].max_new_tokens


@table(
    "stopping, expected",
    [
        ({}, 12),
        ({"default_max_tokens": 16}, 12),
        ({"default_max_tokens": 5}, 5),
        ({"default_max_tokens": 5, "min_tokens": 9}, 9),
        ({"max_tokens": 12}, 12),
        ({"max_tokens": 3, "default_max_tokens": 16}, 3),
        ({"is_unlimited": True, "default_max_tokens": 16}, 12),
    ],
)
async def test_a_client_without_a_limit_gets_the_models_limit(
    tmp_path: Path, stopping: dict[str, Any], expected: int
) -> None:
    engine = new_engine(tmp_path, max_tokens_limit=12)

    assert await max_new_tokens(engine, **stopping) == expected


@table(
    "stopping, param",
    [
        ({"max_tokens": 13}, "max_tokens"),
        (
            {"max_tokens": 13, "max_tokens_param": "max_completion_tokens"},
            "max_completion_tokens",
        ),
        ({"min_tokens": 13}, "min_tokens"),
    ],
)
async def test_more_than_the_models_limit_is_refused_by_the_clients_parameter_name(
    tmp_path: Path, stopping: dict[str, Any], param: str
) -> None:
    engine = new_engine(tmp_path, max_tokens_limit=12)

    with pytest.raises(InvalidRequest, match="at most 12") as caught:
        await max_new_tokens(engine, **stopping)

    assert caught.value.param == param


async def test_more_answers_than_the_models_limit_are_refused(tmp_path: Path) -> None:
    engine = new_engine(tmp_path, best_of_limit=2)

    assert len((await prepared_of(engine, replace(RAW, n=2))).submits) == 2
    with pytest.raises(InvalidRequest, match="`n` must be at most 2"):
        await prepared_of(engine, replace(RAW, n=3))


async def test_a_model_whose_cache_is_evicted_refuses_beam_searches(tmp_path: Path) -> None:
    eviction = CacheEviction(start_size=32, recent_size=32, max_cache_size=96)
    engine = new_engine(tmp_path, cache_eviction=eviction, enable_prefix_caching=False)

    with pytest.raises(UnsupportedParameter, match="cache_eviction") as refusal:
        await prepared_of(engine, replace(HELLO, beams=BeamSearch(width=2)))

    assert refusal.value.param == "use_beam_search"


async def test_without_split_fuse_prompt_and_answer_fit_into_one_step(tmp_path: Path) -> None:
    engine = new_engine(tmp_path, dynamic_split_fuse=False, max_num_batched_tokens=64)

    prepared = await prepared_of(engine, RAW)

    assert prepared.submits[0].max_new_tokens == 64 - NUM_RAW
    with pytest.raises(ContextTooLong, match="64"):
        await prepared_of(engine, replace(RAW, stopping=Stopping(max_tokens=64)))


async def test_min_tokens_must_fit_too(tmp_path: Path) -> None:
    engine = new_engine(tmp_path, max_context=NUM_RAW + 3)

    assert await max_new_tokens(engine, min_tokens=3) == 3
    with pytest.raises(ContextTooLong) as caught:
        await max_new_tokens(engine, min_tokens=4)

    assert f"requested {NUM_RAW + 4} tokens" in caught.value.message
    assert "(4 in the completion)" not in caught.value.message
    assert "4 in the completion" in caught.value.message


async def test_the_stop_rules_reach_the_engine(engine: Engine) -> None:
    stopping = Stopping(max_tokens=9, min_tokens=4, stop_token_ids=(5, 6), ignore_eos=True)

    submit = (await prepared_of(engine, replace(RAW, stopping=stopping))).submits[0]

    assert (submit.max_new_tokens, submit.min_new_tokens) == (9, 4)
    assert submit.stop_token_ids == (5, 6)
    assert submit.ignore_eos


async def test_stop_ids_must_be_tokens_of_the_model(engine: Engine) -> None:
    with pytest.raises(InvalidRequest, match="names the token 3072") as caught:
        await prepared_of(engine, replace(RAW, stopping=Stopping(stop_token_ids=(3072,))))

    assert caught.value.param == "stop_token_ids"


WITH_GRAMMAR = replace(HELLO, grammar=Grammar(GrammarKind.JSON_SCHEMA, "{}", "response_format"))
FORCED = replace(
    HELLO,
    prompt=replace(HELLO.prompt, tools=(Tool("f"),), tool_choice=ToolChoice(ToolMode.REQUIRED)),
)


@table("request_", [WITH_GRAMMAR, FORCED])
@table(
    "param, stopping",
    [("min_tokens", Stopping(min_tokens=5)), ("ignore_eos", Stopping(ignore_eos=True))],
)
async def test_parameters_that_continue_after_the_grammar_are_refused(
    engine: Engine, request_: GenerationRequest, param: str, stopping: Stopping
) -> None:
    with pytest.raises(InvalidRequest, match="cannot go with") as caught:
        await prepared_of(engine, replace(request_, stopping=stopping))

    assert caught.value.param == param


async def test_a_prompt_that_an_npu_was_not_compiled_for_is_refused(tmp_path: Path) -> None:
    engine = new_engine(tmp_path, max_prompt_len=NUM_RAW, min_response_len=20)
    longer = replace(RAW, prompt=RawPrompts(("Hi there, friend",)))

    assert await max_new_tokens(engine) == 20
    with pytest.raises(ContextTooLong, match=f"maximum context length is {NUM_RAW} tokens"):
        await prepared_of(engine, longer)


async def test_a_head_proposes_a_number_of_tokens(tmp_path: Path) -> None:
    engine = new_engine(tmp_path, eagle3_head="/head")

    def asked(**values: Any) -> GenerationRequest:
        return replace(HELLO, assistance=SpeculativeDecoding(**values))

    prepared = [await prepared_of(engine, each) for each in (HELLO, asked(num_tokens=3))]

    assert [each.submits[0].assist for each in prepared] == [SpeculationSpec(5), SpeculationSpec(3)]
    with pytest.raises(UnsupportedParameter, match="served with the option draft_model, which"):
        await prepared_of(engine, asked(confidence_threshold=0.5))
    with pytest.raises(UnsupportedParameter, match="beam search"):
        await prepared_of(engine, replace(HELLO, beams=BeamSearch(2)))
