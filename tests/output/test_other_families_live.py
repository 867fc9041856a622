"""The real engine under grammars of the families whose calls are no JSON: a schema is
kept to in the family's own syntax."""

import re
from typing import Any

import pytest

from tests.tables import table
from vinery_serving.core.request import Tool, ToolChoice, ToolMode

from .builders import object_of
from .rotation import rotated
from .tiny_chat import Model, asked, calls_of, straight

pytestmark = pytest.mark.live

FAMILIES = [
    *("llama3_pythonic", "llama4_pythonic", "lfm2", "qwen3coder", "glm4", "minicpm5"),
    *("onyx", "gptoss", "gemma4"),
]
every_family = table("name", FAMILIES)
QUESTION = "What is the weather in Paris and in London?"


def arguments_of(model: Model, name: str, schema: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments that the model writes for parameters of this schema."""
    model.use(straight(name))
    tool = Tool("take", None, schema)
    choice = ToolChoice(ToolMode.NAMED, "take")

    result = model.answer(asked(QUESTION, tools=[tool], tool_choice=choice))

    [(called, arguments)] = calls_of(result)
    assert called == "take"
    return arguments


def an_argument(model: Model, name: str, schema: dict[str, Any], **document: Any) -> Any:
    found = arguments_of(model, name, object_of(it=schema) | document)
    assert found.keys() == {"it"}
    return found["it"]


SCHEMAS = [
    ({"type": "integer", "minimum": 1, "maximum": 5}, lambda it: it in range(1, 6)),
    ({"type": ["boolean", "null"]}, lambda it: it in (True, False, None)),
    ({"enum": ["a)", 'b"', "c}\nd", "é'"]}, lambda it: it in ("a)", 'b"', "c}\nd", "é'")),
    ({"enum": [None, "no", 7]}, lambda it: it in (None, "no", 7)),
    ({"const": {"a": [1, None, {"b": "x]"}]}}, lambda it: it == {"a": [1, None, {"b": "x]"}]}),
    ({"type": "string", "minLength": 2, "maxLength": 4}, lambda it: len(it) <= 4),
    (
        {"type": "array", "items": {"type": "boolean"}, "minItems": 2, "maxItems": 3},
        lambda it: len(it) in (2, 3) and set(it) <= {True, False},
    ),
    (
        object_of(
            ["inner"],
            name={"type": "string", "maxLength": 3},
            inner=object_of(n={"type": "integer", "minimum": 0, "maximum": 9}),
        ),
        lambda it: it["inner"]["n"] in range(10) and it.keys() <= {"name", "inner"},
    ),
    ({"$ref": "#/$defs/size"}, lambda it: it in ("s", "m", 40)),
    ({"anyOf": [{"$ref": "#/$defs/size"}, {"type": "null"}]}, lambda it: True),
]


@pytest.mark.smoke
@table("name, schema_and_check", rotated(FAMILIES, SCHEMAS, each=3))
def test_an_argument_fits_its_schema(model, name, schema_and_check):
    schema, fits = schema_and_check
    definitions = {"size": {"enum": ["s", "m", 40]}}

    it = an_argument(model, name, schema, **{"$defs": definitions})

    assert fits(it)


@table("name", ["qwen3coder", "glm4", "minicpm5", "onyx"])
def test_a_pattern_holds_for_raw_text(model, name):
    it = an_argument(model, name, {"type": "string", "pattern": "^[A-Z]{2}-[0-9]$"})

    assert re.fullmatch("[A-Z]{2}-[0-9]", it)


@every_family
def test_required_arguments_are_there_and_others_come_in_order(model, name):
    properties = {key: {"type": "boolean"} for key in "abcd"}
    for required in (["b", "d"], []):
        arguments = arguments_of(model, name, object_of(required, **properties))

        assert set(required) <= arguments.keys() <= set("abcd")
        assert list(arguments) == sorted(arguments)
