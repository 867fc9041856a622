"""Values that are decided and requests that are refused before an engine is needed."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import openvino_genai as genai
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.gateway.running.tiny_chat import HELLO, RAW, ids_of, new_engine, prepared_of, texts_of
from tests.prompting.builders import a_chat
from tests.tables import table
from vinery_serving.core import events as ev
from vinery_serving.core import request as req
from vinery_serving.core.dialects import DIALECTS
from vinery_serving.core.errors import (
    ContextTooLong,
    InvalidGrammar,
    InvalidRequest,
    UnsupportedParameter,
)
from vinery_serving.core.request import Endpoint, GenerationRequest, RawPrompts, Sampling
from vinery_serving.engine.option_groups import CacheEviction
from vinery_serving.engine.options import parse_options
from vinery_serving.engine.pipeline import _set_sampling
from vinery_serving.gateway.engines.directory import Engine
from vinery_serving.gateway.engines.models import defaults_of
from vinery_serving.gateway.preparing.checks import CLIENT_DEFAULTS, with_returns
from vinery_serving.gateway.preparing.prepare import prepare, resolve_sampling
from vinery_serving.gateway.preparing.prepared import Draft, Origin
from vinery_serving.prompting.folder import GenerationDefaults
from vinery_serving.protocols import parse

NUM_RAW = len(ids_of("Hi there"))


async def test_samples_of_one_request_have_seeds_of_their_own_which_are_drawn_if_need_be(engine):
    request = replace(HELLO, n=3, sampling=replace(HELLO.sampling, seed=5, temperature=1.0))
    seeds = [each.sampling.seed for each in (await prepared_of(engine, request)).submits]
    assert seeds[0] == 5
    assert len(set(seeds)) == 3

    first, second = await prepared_of(engine), await prepared_of(engine)
    assert first.submits[0].sampling.seed != second.submits[0].sampling.seed


async def test_more_answers_than_the_models_limit_and_beams_of_an_evicted_cache_are_refused(
    tmp_path,
):
    engine = new_engine(tmp_path, best_of_limit=2)
    assert len((await prepared_of(engine, replace(RAW, n=2))).submits) == 2
    with pytest.raises(InvalidRequest, match="`n` must be at most 2"):
        await prepared_of(engine, replace(RAW, n=3))

    eviction = CacheEviction(start_size=32, recent_size=32, max_cache_size=96)
    engine = new_engine(tmp_path, cache_eviction=eviction, enable_prefix_caching=False)
    with pytest.raises(UnsupportedParameter, match="cache_eviction") as refusal:
        await prepared_of(engine, replace(HELLO, beams=req.BeamSearch(width=2)))
    assert refusal.value.param == "use_beam_search"


async def test_prompt_and_answer_fit_into_one_step_and_into_what_an_npu_was_compiled_for(tmp_path):
    engine = new_engine(tmp_path, dynamic_split_fuse=False, max_num_batched_tokens=64)
    assert (await prepared_of(engine, RAW)).submits[0].max_new_tokens == 64 - NUM_RAW
    with pytest.raises(ContextTooLong, match="64"):
        await prepared_of(engine, replace(RAW, stopping=req.Stopping(max_tokens=64)))

    engine = new_engine(tmp_path, max_prompt_len=NUM_RAW, min_response_len=20)
    assert (await prepared_of(engine, RAW)).submits[0].max_new_tokens == 20
    with pytest.raises(ContextTooLong, match=f"maximum context length is {NUM_RAW} tokens"):
        await prepared_of(engine, replace(RAW, prompt=req.RawPrompts(("Hi there, friend",))))


async def test_the_stop_rules_reach_the_engine_and_stop_ids_must_be_tokens_of_the_model(engine):
    stopping = req.Stopping(max_tokens=9, min_tokens=4, stop_token_ids=(5, 6), ignore_eos=True)
    submit = (await prepared_of(engine, replace(RAW, stopping=stopping))).submits[0]
    assert (submit.max_new_tokens, submit.min_new_tokens) == (9, 4)
    assert (submit.stop_token_ids, submit.ignore_eos) == ((5, 6), True)

    with pytest.raises(InvalidRequest, match="names the token 3072") as caught:
        await prepared_of(engine, replace(RAW, stopping=req.Stopping(stop_token_ids=(3072,))))
    assert caught.value.param == "stop_token_ids"


GRAMMAR = req.Grammar(req.GrammarKind.JSON_SCHEMA, "{}", "response_format")
REQUIRED = req.ToolChoice(req.ToolMode.REQUIRED)
FORCED = replace(HELLO.prompt, tools=(req.Tool("f"),), tool_choice=REQUIRED)


@table("request_", [replace(HELLO, grammar=GRAMMAR), replace(HELLO, prompt=FORCED)])
@table(
    "param, stopping",
    [("min_tokens", req.Stopping(min_tokens=5)), ("ignore_eos", req.Stopping(ignore_eos=True))],
)
async def test_parameters_that_continue_after_the_grammar_are_refused(
    engine, request_, param, stopping
):
    with pytest.raises(InvalidRequest, match="cannot go with") as caught:
        await prepared_of(engine, replace(request_, stopping=stopping))

    assert caught.value.param == param


def a_format(strict: bool | None, **schema: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"schema": schema, "strict": strict}}


def a_tool(name: str, strict: bool | None, **schema: Any) -> dict[str, Any]:
    function = {"name": name, "strict": strict, "parameters": schema}
    return {"type": "function", "function": function}


def chat_of(fields: dict[str, Any]) -> req.GenerationRequest:
    body = json.dumps({"messages": [{"role": "user", "content": "Hi"}], **fields}).encode()
    return parse(req.Endpoint.CHAT, body, DIALECTS["v1"], fingerprint=None).request


OBJECT = {"type": "object"}
USUAL = {**OBJECT, "properties": {"own": {"type": "string"}}}
ELSEWHERE = {**OBJECT, "properties": {"own": {"$ref": "https://example.com/own.json"}}}
INVALID = {**OBJECT, "properties": {"own": {"type": "nonsense"}}}
FORMAT = "response_format.json_schema.schema"
ONE_LOOSE = [a_tool("f", None, **ELSEWHERE), a_tool("g", True, **USUAL)]
ONE_STRICT = [a_tool("f", False, **USUAL), a_tool("g", True, **ELSEWHERE)]


@table(
    "fields, unenforced, weaker_unenforced",
    [
        ({"response_format": a_format(None, **USUAL)}, "", FORMAT),
        ({"response_format": a_format(False, **ELSEWHERE)}, FORMAT, None),
        ({"response_format": a_format(False, items=ELSEWHERE)}, FORMAT, None),
        ({"response_format": a_format(True, **USUAL)}, "", None),
        ({"response_format": {"type": "json_object"}}, "", None),
        ({"tools": ONE_LOOSE[:1]}, None, None),
        ({"tools": ONE_LOOSE}, "", None),
        ({"tools": ONE_LOOSE, "tool_choice": "required"}, "tools.parameters", None),
        (
            {"tools": [a_tool("f", None, **USUAL)], "tool_choice": "required"},
            "",
            "tools.parameters",
        ),
        (
            {"tools": ONE_LOOSE, "response_format": a_format(None, **USUAL)},
            f"tools.parameters, {FORMAT}",
            None,
        ),
        (
            {"tools": [{"type": "custom", "custom": {"name": "f"}}], "tool_choice": "required"},
            "",
            None,
        ),
    ],
)
async def test_a_schema_that_is_not_strict_is_left_out_where_it_is_too_much(
    engine, fields, unenforced, weaker_unenforced
):
    [submit] = (await prepared_of(engine, chat_of(fields))).submits

    if unenforced is None:
        assert submit.grammar is None
        return
    assert submit.grammar.unenforced == unenforced
    weaker = submit.grammar.weaker
    assert (weaker and weaker.unenforced) == weaker_unenforced
    assert weaker is None or "own" not in weaker.source


@table(
    "fields, param",
    [
        ({"response_format": a_format(True, **ELSEWHERE)}, FORMAT),
        ({"response_format": a_format(False, **INVALID)}, FORMAT),
        ({"tools": ONE_STRICT, "tool_choice": "required"}, "tools.g.parameters"),
        (
            {"tools": [a_tool("f", None, **INVALID)], "tool_choice": "required"},
            "tools.f.parameters",
        ),
    ],
)
async def test_a_strict_schema_that_is_too_much_is_refused_and_so_is_an_invalid_one(
    engine, fields, param
):
    with pytest.raises(InvalidGrammar) as caught:
        await prepared_of(engine, chat_of(fields))
    assert caught.value.param.startswith(f"{param}.properties.own")


async def test_a_head_proposes_a_number_of_tokens(tmp_path):
    engine = new_engine(tmp_path, eagle3_head="/head")

    def asked(**values: Any) -> req.GenerationRequest:
        return replace(HELLO, assistance=req.SpeculativeDecoding(**values))

    prepared = [await prepared_of(engine, each) for each in (HELLO, asked(num_tokens=3))]

    assert [each.submits[0].assist for each in prepared] == [
        req.SpeculativeDecoding(5),
        req.SpeculativeDecoding(3, is_asked=True),
    ]
    with pytest.raises(UnsupportedParameter, match="served with the option draft_model, which"):
        await prepared_of(engine, asked(confidence_threshold=0.5))
    for tree, fields in (("v1", {"use_beam_search": True}), ("v3", {"best_of": 2})):
        [param] = fields
        body = json.dumps({"prompt": "Hi", "n": 2, **fields}).encode()
        searching = parse(req.Endpoint.COMPLETIONS, body, DIALECTS[tree], fingerprint=None).request
        with pytest.raises(UnsupportedParameter, match=f"beam search. Leave out `{param}`") as no:
            await prepared_of(engine, searching)
        assert no.value.param == param


# -- Limits that clients send by default are clamped -------------------------------------

ROOM = 100


def served(home: Path, **options: Any) -> Engine:
    parsed = parse_options(options)
    return new_engine(home, **{name: getattr(parsed, name) for name in options})


def drafted(
    folder: Path, request: req.GenerationRequest = RAW, *, options: Any = None, **stopping: Any
) -> Draft:
    engine = served(folder, **{"max_context": NUM_RAW + ROOM, **(options or {})})
    return prepare(replace(request, stopping=req.Stopping(**stopping)), engine, Origin(60))


def limits_of(draft: Draft) -> set[int]:
    return {submit.max_new_tokens for submit in draft.submits}


ALWAYS, NEVER = {"clamp_max_tokens": "always"}, {"clamp_max_tokens": "never"}
UP_TO_12, USUALLY_9 = {"max_tokens_limit": 12}, {"defaults": {"max_tokens": 9}}
LATER_NAME = {"max_tokens": 13, "max_tokens_param": "max_completion_tokens"}


@table(
    "options, stopping, limit, clamped_to",
    [
        # A client without a limit gets the model's, or the rest of the context.
        ({}, {}, ROOM, None),
        ({}, {"is_unlimited": True}, ROOM, None),
        (UP_TO_12, {}, 12, None),
        (UP_TO_12, {"default_max_tokens": 16}, 12, None),
        (UP_TO_12, {"default_max_tokens": 5}, 5, None),
        (UP_TO_12, {"default_max_tokens": 5, "min_tokens": 9}, 9, None),
        (UP_TO_12, {"max_tokens": 12}, 12, None),
        (UP_TO_12, {"max_tokens": 3, "default_max_tokens": 16}, 3, None),
        (UP_TO_12, {"is_unlimited": True, "default_max_tokens": 16}, 12, None),
        # An administrator's default comes before that of the endpoint.
        (USUALLY_9, {}, 9, None),
        (USUALLY_9, {"default_max_tokens": 16}, 9, None),
        (USUALLY_9, {"max_tokens": 3}, 3, None),
        (USUALLY_9, {"max_tokens": 12}, 12, None),
        # A default of a client gets the rest of the context, if it does not fit.
        *(({}, {"max_tokens": number}, ROOM, ROOM) for number in CLIENT_DEFAULTS),
        ({"max_context": 10_000}, {"max_tokens": 4096}, 4096, None),
        # A model may clamp any number, and its own limit clamps too.
        (ALWAYS, {"max_tokens": 4096}, ROOM, ROOM),
        (ALWAYS, {"max_tokens": 4097}, ROOM, ROOM),
        (UP_TO_12, {"max_tokens": 4096}, 12, 12),
        # The least number of tokens must still fit.
        ({}, {"max_tokens": 4096, "min_tokens": ROOM}, ROOM, ROOM),
        ({}, {"min_tokens": ROOM}, ROOM, None),
    ],
)
def test_the_limit_of_an_answer(tmp_path, options, stopping, limit, clamped_to):
    draft = drafted(tmp_path, options=options, **stopping)

    assert limits_of(draft) == {limit}
    assert draft.clamped_to == clamped_to


@table(
    "options, stopping, param, words",
    [
        (UP_TO_12, {"max_tokens": 13}, "max_tokens", "must be at most 12"),
        (UP_TO_12, LATER_NAME, "max_completion_tokens", "at most 12"),
        (UP_TO_12, {"min_tokens": 13}, "min_tokens", "at most 12"),
        ({}, {"max_tokens": 4097}, "prompt", "4097 in the completion"),
        (NEVER, {"max_tokens": 4096}, "prompt", "4096 in the completion"),
        (NEVER, {"max_tokens": 4097}, "prompt", "4097 in the completion"),
        # A prompt that fills the context is refused all the same.
        ({"max_context": NUM_RAW}, {"max_tokens": 4096}, "prompt", "maximum context length"),
        ({}, {"max_tokens": 4096, "min_tokens": ROOM + 1}, "prompt", "maximum context length"),
        ({}, {"min_tokens": ROOM + 1}, "prompt", f"requested {NUM_RAW + ROOM + 1} tokens"),
        ({}, {"min_tokens": ROOM + 1}, "prompt", rf"[^(]{ROOM + 1} in the completion"),
    ],
)
def test_a_limit_that_does_not_fit_is_refused_by_the_clients_name_for_it(
    tmp_path, options, stopping, param, words
):
    with pytest.raises(InvalidRequest, match=words) as caught:
        drafted(tmp_path, options=options, **stopping)

    assert caught.value.param == param
    assert isinstance(caught.value, ContextTooLong) == (param == "prompt")


def test_a_conversation_that_may_be_shortened_keeps_room_for_an_answer(tmp_path):
    words = "word " * 40
    turns = [("user", words), ("assistant", words)] * 2
    chat = a_chat(*turns, ("user", words), drops_oldest=True)
    request = req.GenerationRequest(req.Endpoint.RESPONSES, None, chat)

    draft = drafted(tmp_path, request, options={"max_context": 400}, max_tokens=4096)

    assert draft.clamped_to is not None
    assert draft.clamped_to >= 400 // 8

    request = replace(RAW, prompt=req.RawPrompts(((5,) * 10, (5,) * 30)))
    draft = drafted(tmp_path, request, options={"max_context": 100}, max_tokens=4096)
    assert limits_of(draft) == {90, 70}
    assert draft.clamped_to == 70


# -- Defaults and limits that an administrator sets for a model --------------------------


async def sampling_of(engine: Engine, **asked: Any) -> Sampling:
    prepared = await prepared_of(engine, replace(HELLO, sampling=req.Sampling(**asked)))
    return prepared.submits[0].sampling


async def test_a_default_holds_for_requests_that_name_no_value_before_that_of_the_folder(tmp_path):
    engine = served(tmp_path, defaults={"temperature": 0.3, "top_k": 7})
    assert (await sampling_of(engine)).temperature == 0.3
    assert (await sampling_of(engine, temperature=1.5)).temperature == 1.5
    assert (await sampling_of(engine, temperature=1.5)).top_k == 7

    folder = GenerationDefaults(do_sample=False, temperature=0.9, top_p=0.8, max_new_tokens=5)
    options = parse_options({"defaults": {"temperature": 0.3, "max_tokens": 9}})
    expected = GenerationDefaults(do_sample=True, temperature=0.3, top_p=0.8, max_new_tokens=9)
    assert defaults_of(options, folder) == expected
    assert defaults_of(parse_options({}), folder) == folder


CALLED = (
    "<think>Hm.</think>\n\nSee."
    '<tool_call>\n{"name": "look", "arguments": {"at": "it"}}\n</tool_call>'
)


@table(
    "fields, options, is_parsed",
    [
        ({"parses_output": True}, None, True),
        ({"parses_output": None}, {"parse_output": True}, True),
        ({"parses_output": False}, {"parse_output": True}, False),
        ({"parses_output": None}, None, False),
        ({"grammar": req.Grammar(req.GrammarKind.REGEX, "a")}, {"parse_output": True}, False),
        ({"prompt": req.RawPrompts(("Hi",), suffix="!")}, {"parse_output": True}, False),
    ],
)
def test_an_answer_to_a_raw_prompt_is_parsed_if_the_request_or_its_model_asks(
    tmp_path, fields, options, is_parsed
):
    parameters = parse_options({"defaults": options})
    assert with_returns(replace(RAW, **fields), parameters).parses_output or not is_parsed
    assert not with_returns(replace(RAW, **fields), parameters).parses_output or is_parsed


async def test_a_parsed_answer_to_a_raw_prompt_has_reasoning_and_calls_of_any_name(tmp_path):
    engine = new_engine(tmp_path, output_format="think+hermes")
    for prompt, output in (("Hi", CALLED), ("Hi<think>", CALLED.removeprefix("<think>"))):
        request = replace(RAW, prompt=req.RawPrompts((prompt,)), parses_output=True)
        reader = (await prepared_of(engine, request)).reader(0)
        events = [*reader.feed(ids_of(output)), *reader.finish("stop")]
        assert events[0] == ev.ReasoningDelta(0, "Hm.")
        (called,) = [event for event in events if isinstance(event, ev.ToolCallStarted)]
        assert called.name == "look"
        assert "".join(texts_of(events)) == "See."
        assert events[-1].reason is ev.FinishReason.TOOL_CALLS


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
async def test_a_value_outside_of_the_limits_is_refused_by_its_name(tmp_path, asked, message):
    with pytest.raises(InvalidRequest, match=message) as refusal:
        await sampling_of(served(tmp_path, **LIMITS), **asked)

    assert refusal.value.param == next(iter(asked))


async def test_a_value_that_no_request_names_is_moved_into_the_limits(tmp_path):
    greedy = served(tmp_path, defaults={"temperature": 0.2}, **LIMITS)
    assert (await sampling_of(served(tmp_path, **LIMITS))).temperature <= 1.0
    assert (await sampling_of(greedy)).temperature == 0.2
    assert (await sampling_of(greedy)).top_k == 50
    allowed = await sampling_of(greedy, temperature=0.7, top_k=20)
    assert (allowed.temperature, allowed.top_k) == (0.7, 20)
    # A beam search has no limits of sampling.
    searching = replace(HELLO, beams=req.BeamSearch(width=2))
    prepared = await prepared_of(served(tmp_path, **LIMITS), searching)
    assert prepared.submits[0].beams is not None


# -- Every valid request becomes sampling values that the engine accepts

NO_DEFAULTS = GenerationDefaults()
PART = st.floats(0, 1)


def resolved(defaults: GenerationDefaults = NO_DEFAULTS, **asked: Any) -> Sampling:
    request = GenerationRequest(Endpoint.COMPLETIONS, None, RawPrompts(("a",)), Sampling(**asked))
    return resolve_sampling(request, defaults)


@given(st.floats(0, 2), PART, PART)
@example(1.0, 5e-324, 1.0)
@example(5e-324, 1.0, 1 - 1e-12)
def test_the_engine_accepts_every_valid_value(temperature, top_p, min_p):
    config = genai.GenerationConfig()
    config.max_new_tokens = 1

    _set_sampling(config, resolved(temperature=temperature, top_p=top_p, min_p=min_p))

    config.validate()


def test_the_largest_min_p_keeps_only_the_likeliest_tokens_and_a_tiny_temperature_is_greedy():
    params = resolved(temperature=0.7, top_p=0.9, min_p=0.05)
    assert (params.temperature, params.top_p, params.min_p) == (0.7, 0.9, 0.05)
    in_engine_floats = np.float32(resolved(GenerationDefaults(min_p=1.0)).min_p)
    assert in_engine_floats < 1
    assert np.nextafter(in_engine_floats, np.float32(2)) == 1

    for temperature in (0.0, 5e-324, 1e-45, 1e-38, 9e-6):
        assert resolved(temperature=temperature).temperature == 0
