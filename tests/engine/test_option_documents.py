"""What administrators read of the engine's options."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.tables import table
from vinery_serving.engine.option_parsing import option_documents, parse_options
from vinery_serving.engine.options import EngineOptions

REFUSED = json.loads(Path(__file__).with_name("refused_options.json").read_text())


def test_every_option_has_a_meaning_and_a_default_that_changes_nothing() -> None:
    documents = option_documents()
    names = [document.name for document in documents]
    assert tuple(each for each in names if "." not in each) == EngineOptions.__struct_fields__
    assert names[names.index("cache_eviction") + 1] == "cache_eviction.start_size"
    assert all(document.meaning for document in documents)

    written = {one.name: json.loads(one.default) for one in documents if "." not in one.name}
    assert parse_options(written) == parse_options({})


@table(
    "name, advice",
    [("max_runing", "Did you mean max_running?"), ("colour", "There are max_running, max_waiting")],
)
def test_an_unknown_option_is_answered_with_advice(name: str, advice: str) -> None:
    with pytest.raises(ValueError, match=f"There is no option {name}. ") as refusal:
        parse_options({name: 1})
    assert advice in str(refusal.value)


NO_NUMBER = ("max_share", float("nan"), "max_share must be at most 2147483647.")


@table("name, value, message", [*REFUSED["values"], NO_NUMBER])
def test_a_wrong_value_is_answered_with_a_right_one(name: str, value: object, message: str) -> None:
    with pytest.raises(ValueError, match="must") as refusal:
        parse_options({name: value})
    assert str(refusal.value) == message


@table("options, message", REFUSED["combinations"])
def test_options_that_exclude_each_other_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as refusal:
        parse_options(options)
    assert str(refusal.value) == message


def test_a_whole_number_is_a_number_and_without_split_fuse_a_context_is_one_step() -> None:
    assert parse_options({"max_share": 1}).max_share == 1.0

    whole = parse_options({"dynamic_split_fuse": False, "max_num_batched_tokens": 512})
    assert whole.context_of(2048) == whole.context_of(None) == 512
    assert whole.context_of(100) == 100
    assert parse_options({}).context_of(2048) == 2048
    assert parse_options({"max_context": 64}).context_of(2048) == 64
