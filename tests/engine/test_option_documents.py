"""What administrators read of the engine's options."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.tables import table
from vinery_serving.engine.option_parsing import option_documents, parse_options
from vinery_serving.engine.options import EngineOptions


def test_every_option_has_its_default_and_a_meaning() -> None:
    documents = option_documents()
    names = [document.name for document in documents]
    assert tuple(each for each in names if "." not in each) == EngineOptions.__struct_fields__
    assert names[names.index("cache_eviction") + 1] == "cache_eviction.start_size"
    assert all(document.meaning for document in documents)


def test_the_documented_defaults_are_options_that_change_nothing() -> None:
    written = {
        document.name: json.loads(document.default)
        for document in option_documents()
        if "." not in document.name
    }
    assert parse_options(written) == parse_options({})


@table(
    "name, advice",
    [("max_runing", "Did you mean max_running?"), ("colour", "There are max_running, max_waiting")],
)
def test_an_unknown_option_is_answered_with_advice(name: str, advice: str) -> None:
    with pytest.raises(ValueError, match=f"There is no option {name}. ") as refusal:
        parse_options({name: 1})
    assert advice in str(refusal.value)


@table(
    "name, value, message",
    [
        ("max_running", "many", 'max_running must be a whole number, not "many".'),
        ("max_running", True, "max_running must be a whole number, not true."),
        ("max_running", 1.5, "max_running must be a whole number, not 1.5."),
        ("max_running", None, "max_running must be a whole number, not null."),
        ("max_running", 0, "max_running must be positive."),
        ("max_running", 10**30, "max_running must be at most 2147483647."),
        ("max_share", [0.5], "max_share must be a number, not [0.5]."),
        ("max_share", float("nan"), "max_share must be at most 2147483647."),
        ("max_queue_s", -1, "max_queue_s must not be negative."),
        ("enable_prefix_caching", 1, "enable_prefix_caching must be true or false, not 1."),
        ("draft_model", 5, "draft_model must be a text, not 5."),
        ("clamp_max_tokens", 5, "clamp_max_tokens must be defaults, always or never, not 5."),
        (
            *("clamp_max_tokens", "some"),
            'clamp_max_tokens must be defaults, always or never, not "some".',
        ),
        ("logits_processors", "a:b", 'logits_processors must be a list of texts, not "a:b".'),
        ("logits_processors", [1], "logits_processors must be a list of texts, not [1]."),
        ("plugin", [], "plugin must be an object, not []."),
        ("output_format", ["x" * 90], f'output_format must be a text, not ["{"x" * 38}….'),
    ],
)
def test_a_wrong_value_is_answered_with_a_right_one(name: str, value: object, message: str) -> None:
    with pytest.raises(ValueError, match="must") as refusal:
        parse_options({name: value})
    assert str(refusal.value) == message


EVICTION = {"start_size": 32, "recent_size": 64, "max_cache_size": 192}
KEPT = {"cache_eviction": EVICTION, "enable_prefix_caching": False}


@table(
    "options, message",
    [
        ({"cache_eviction": 5}, "cache_eviction must be an object or null, not 5."),
        (
            {"cache_eviction": {"start_size": 32, "max_cache_size": 64}},
            "cache_eviction.recent_size is missing: cache_eviction needs it.",
        ),
        (
            {"cache_eviction": {**EVICTION, "max_cache_size": 96}},
            "cache_eviction: max_cache_size must be more than start_size and recent_size together.",
        ),
        (
            {"cache_eviction": {**EVICTION, "start_size": 33}},
            "cache_eviction: start_size must be a multiple of 16, not 33.",
        ),
        (
            {"sparse_attention": {"mode": "x"}},
            'sparse_attention.mode must be trishape or xattention, not "x".',
        ),
        (
            {"sparse_attention": {"stripe": 8}},
            "There is no option sparse_attention.stripe. Did you mean sparse_attention.stride?",
        ),
        ({"sparse_attention": {"stride": 7}}, "sparse_attention: stride must divide block_size."),
        (
            {"kv_cache_precision": "q4"},
            'kv_cache_precision must be empty, u8, i8, u4, i4, u3, f16, bf16 or f32, not "q4".',
        ),
        (
            {"cache_eviction": EVICTION},
            "cache_eviction and enable_prefix_caching exclude each other, because a context with "
            "gaps is no beginning of another prompt: set enable_prefix_caching to false, too.",
        ),
        *(
            ({**KEPT, each: "/m"}, f"cache_eviction and {each} exclude each other: choose one.")
            for each in ("draft_model", "eagle3_head")
        ),
        (
            {"eagle3_head": "/h", "prompt_lookup": True},
            "eagle3_head and prompt_lookup exclude each other: choose one.",
        ),
        (
            {**KEPT, "cache_eviction": {**EVICTION, "apply_rotation": True}},
            "cache_eviction with apply_rotation needs a cache of fixed size: set cache_size_gb.",
        ),
        ({"defaults": {"top_k": 1.5}}, "defaults.top_k must be a whole number or null, not 1.5."),
        ({"adapters": ["/a"]}, 'adapters must be a list of objects, not ["/a"].'),
        ({"adapters": {"path": "/a"}}, 'adapters must be a list of objects, not {"path": "/a"}.'),
        ({"adapters": [{"alpha": 1}]}, "adapters.path is missing: adapters needs it."),
        ({"adapters": [{"path": "a"}]}, "adapters[0]: path must be an absolute path."),
        ({"maxima": {"top_p": 3}}, "maxima: top_p must be from 0 to 1."),
        (
            {"maxima": {"temperature": 1}, "minima": {"temperature": 1.5}},
            "the minimum of temperature must be at most its maximum.",
        ),
        (
            {"maxima": {"temperature": 1}, "defaults": {"temperature": 1.5}},
            "the default of temperature must be from its minimum to its maximum.",
        ),
        (
            {"defaults": {"max_tokens": 9}, "max_tokens_limit": 8},
            "the default of max_tokens must be at most max_tokens_limit.",
        ),
        (
            {"maxima": {"max_tokens": 9}},
            "There is no option maxima.max_tokens. There are temperature, top_p, top_k, min_p, "
            "frequency_penalty, presence_penalty, repetition_penalty.",
        ),
        (
            {"draft_device": "CPU"},
            "draft_device is for a draft model, and there is none: set draft_model, too.",
        ),
        (
            {"dynamic_split_fuse": False, "max_running": 300},
            "without dynamic_split_fuse, max_num_batched_tokens must be at least max_running: a "
            "step has a token of each answer.",
        ),
        *(
            (
                {"sparse_attention": {"mode": "xattention"}, each: "/m"},
                f"sparse_attention with the mode xattention and {each} exclude each other: choose "
                "trishape, or leave one out.",
            )
            for each in ("draft_model", "eagle3_head")
        ),
    ],
)
def test_options_that_exclude_each_other_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as refusal:
        parse_options(options)
    assert str(refusal.value) == message


def test_without_split_fuse_the_context_is_what_one_step_computes() -> None:
    whole = parse_options({"dynamic_split_fuse": False, "max_num_batched_tokens": 512})
    assert whole.context_of(2048) == whole.context_of(None) == 512
    assert whole.context_of(100) == 100
    assert parse_options({}).context_of(2048) == 2048
    assert parse_options({"max_context": 64}).context_of(2048) == 64


def test_a_whole_number_is_a_number() -> None:
    assert parse_options({"max_share": 1}).max_share == 1.0
