"""An engine process is started with those options only that it reads."""

import ast
from collections.abc import Iterator

import msgspec

from tests.conftest import REPOSITORY
from tests.tables import table
from vinery_serving.engine.options import EngineOptions, of_engine
from vinery_serving.models.models import ServedModel

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
