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
