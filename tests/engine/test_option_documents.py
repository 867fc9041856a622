"""The texts on engine options for administrators, and the options that an engine gets."""

import ast
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.conftest import REPOSITORY
from tests.tables import table
from vinery_serving.engine.options import EngineOptions, of_engine, option_documents, parse_options
from vinery_serving.models.models import ServedModel

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
    [("max_runing", "Did you mean max_running?"), ("colour", "There are cache_size_gb, ")],
)
def test_an_unknown_option_is_answered_with_advice(name: str, advice: str) -> None:
    with pytest.raises(ValueError, match=f"There is no option {name}. ") as refusal:
        parse_options({name: 1})
    assert advice in str(refusal.value)


NO_NUMBER = ("max_share", float("nan"), "max_share must be a number >= 0.0.")


@table("name, value, message", [*REFUSED["values"], NO_NUMBER])
def test_a_wrong_value_is_answered_with_a_right_one(name: str, value: object, message: str) -> None:
    with pytest.raises(ValueError) as refusal:
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


# The rooms whose processes an engine's options reach.
ROOMS = ("engine", "node")
DECLARED = {each.name for each in msgspec.structs.fields(EngineOptions)}
OF_ENGINE = set(of_engine(dict.fromkeys(DECLARED)))


def reads(room: str) -> Iterator[str]:
    """Yield the options that files of a room read, as `options.name`."""
    for path in (REPOSITORY / "serving/vinery_serving" / room).rglob("*.py"):
        if path.name == "options.py":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and ast.unparse(node.value).endswith("options"):
                yield node.attr


def test_no_engine_and_no_node_reads_an_option_that_only_the_gateway_gets() -> None:
    found = {name for room in ROOMS for name in reads(room)} & DECLARED
    assert {"max_running", "num_threads", "cache_size_gb"} <= found  # the search finds reads
    assert found <= OF_ENGINE


@table(
    "options, needs_another_engine",
    [
        ({"defaults": {"temperature": 0}}, False),
        ({"chat_template": "{{ messages }}", "output_format": "none"}, False),
        ({"max_tokens_limit": 5, "query_prefix": "q: "}, False),
        ({"max_running": 5}, True),
        ({"unknown": 1}, True),
    ],
)
def test_a_change_needs_another_engine_only_for_options_of_engines(options, needs_another_engine):
    before = ServedModel(name="m", folder="/m")
    after = ServedModel(name="m", folder="/m", options=options)
    assert (before.settings_digest != after.settings_digest) is needs_another_engine
