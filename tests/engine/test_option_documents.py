"""What administrators read of the engine's options."""

from __future__ import annotations

import json

import pytest

from vinery_serving.engine.config import EngineOptions, option_documents, parse_options


def test_every_option_has_its_default_and_a_meaning() -> None:
    documents = option_documents()

    assert tuple(document.name for document in documents) == EngineOptions.__struct_fields__
    assert all(document.meaning for document in documents)


def test_the_documented_defaults_are_options_that_change_nothing() -> None:
    written = {document.name: json.loads(document.default) for document in option_documents()}

    assert parse_options(written) == parse_options({})


@pytest.mark.parametrize(
    ("name", "advice"),
    [("max_runing", "Did you mean max_running?"), ("colour", "There are max_running, max_waiting")],
)
def test_an_unknown_option_is_answered_with_advice(name: str, advice: str) -> None:
    with pytest.raises(ValueError, match=f"There is no option {name}. ") as refusal:
        parse_options({name: 1})

    assert advice in str(refusal.value)


@pytest.mark.parametrize(
    ("name", "value", "message"),
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
def test_a_wrong_value_is_answered_with_what_it_must_be(
    name: str, value: object, message: str
) -> None:
    with pytest.raises(ValueError, match="must") as refusal:
        parse_options({name: value})

    assert str(refusal.value) == message


def test_a_whole_number_is_a_number() -> None:
    assert parse_options({"max_share": 1}).max_share == 1.0
