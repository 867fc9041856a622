"""All products of families, reasoning, choices and forms, of which there are pairs by day."""

import pytest

from tests.output.rotation import whole

from . import test_forced_calls_live as calls
from . import test_tags_compile_live as tags

pytestmark = pytest.mark.live

globals().update(
    whole("name, opens_reasoning, wanted", tags.FORMS, tags.test_the_grammar_of_an_answer_compiles)
    | whole("name, opens_reasoning", tags.CALLING, tags.test_the_grammar_of_custom_tools_compiles)
    | whole("name, opens, parallel, choice", calls.CHOICES, calls.test_every_tool_grammar_compiles)
    | whole("name, thinking", calls.NAMED, calls.test_a_named_call_is_generated_and_parsed)
    | whole(
        "name",
        [calls.CALLING],
        calls.test_a_tool_without_parameters_can_be_named_and_long_arguments_arrive_in_many_deltas,
        calls.test_one_required_call_is_generated_and_strict_tools_leave_the_model_free_to_answer,
        calls.test_several_calls_can_be_required,
    )
)
