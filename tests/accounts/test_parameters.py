"""Parameters are declared once: the API, forms and commands read the same names, texts, defaults
and limits."""

import argparse
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import pytest

from tests.tables import table
from vinery_accounts.resources.fields import serializer_of
from vinery_accounts.resources.forms import ParametersForm
from vinery_platform.cli.resource import add_fields, values_of


@dataclass(frozen=True, kw_only=True)
class Baking:
    """How bread is baked."""

    flour: Annotated[str, "The kind of flour.", {"max_length": 10}]
    time_limit_s: Annotated[float, "At most so long.", {"min_value": 1, "label": "Time"}] = 60
    shape: Annotated[Literal["round", "long"] | None, "Its shape; empty: any."] = None
    seeds: Annotated[list[str], "What is in it."] = field(default_factory=list)
    code: Annotated[str | None, "Of the oven.", {"regex": "^[0-9]+$"}] = None
    is_dark: Annotated[bool, "Whether it is dark."] = False


BAKING = serializer_of(Baking)
USUAL = {"time_limit_s": 60, "shape": None, "seeds": [], "code": None, "is_dark": False}


def of_api(values: dict[str, Any]) -> dict[str, Any]:
    body = BAKING(data=values)
    body.is_valid(raise_exception=True)
    return dict(body.validated_data)


def test_all_fronts_have_the_same_defaults() -> None:
    assert of_api({"flour": "rye"}) == {"flour": "rye", **USUAL}

    form = ParametersForm(BAKING, BAKING().fields, {"flour": "rye"})
    assert form.is_valid(), form.errors
    assert form.values == {"flour": "rye", **USUAL}

    parser = argparse.ArgumentParser()
    add_fields(parser, BAKING().fields, {}, BAKING().fields)
    words = ["--flour", "rye", "--seeds", "flax", "--seeds", "hemp", "--dark", "--shape", "long"]
    given = values_of(parser.parse_args(words))
    assert of_api(given)["seeds"] == ["flax", "hemp"]
    assert Baking(**of_api(given)).is_dark is True
    text = parser.format_help()
    assert "at most so long (default: 60)" in text
    assert "what is in it; may be given several times" in text


@table(
    "name, value",
    [("flour", "x" * 11), ("time_limit_s", "0"), ("shape", "square"), ("code", "x"), ("flour", "")],
)
def test_a_wrong_value_is_refused_at_its_field(name: str, value: str) -> None:
    values = {"flour": "rye", name: value}

    assert set(ParametersForm(BAKING, BAKING().fields, values).errors) == {name}
    body = BAKING(data=values)
    assert not body.is_valid()
    assert set(body.errors) == {name}


def test_an_unknown_parameter_is_refused() -> None:
    with pytest.raises(Exception, match="There is no such parameter"):
        of_api({"flour": "rye", "sugar": 1})
