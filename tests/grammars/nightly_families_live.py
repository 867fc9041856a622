"""All products of families, reasoning, choices and forms, of which there are pairs by day."""

import pytest

from tests.output.rotation import whole

from . import test_families_live as by_day

pytestmark = pytest.mark.live

globals().update(
    whole("name, opens, wanted", by_day.FORMS, by_day.test_the_grammar_of_an_answer_compiles)
    | whole("name, choice", by_day.MODES, by_day.test_an_input_fits_its_regular_expression)
    | whole("name, schema_and_check", by_day.ARGUMENTS, by_day.test_an_argument_fits_its_schema)
)
