"""The names of output formats, and the families with these names."""

from __future__ import annotations

import pytest

from tests.tables import table
from vinery_serving.constraints.families.registry import family_names
from vinery_serving.core.output_formats import (
    CALL_FORMATS,
    PLAIN,
    REASONING_FORMATS,
    check_output_format,
)


def test_every_name_has_a_family_and_every_family_a_name() -> None:
    both = {f"{reasoning}+{calls}" for reasoning in REASONING_FORMATS for calls in CALL_FORMATS}

    assert set(family_names()) == {PLAIN, *REASONING_FORMATS, *CALL_FORMATS} | both


@table("name", ["", "german", "hermes+think", "think+none", "a+b+c"])
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="Known formats are deepseek_r1, "):
        check_output_format(name)
