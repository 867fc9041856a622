"""All products of families, reasoning, choices and forms, of which there are pairs by day."""

import pytest

from tests.output.rotation import whole

from . import test_forced_calls_live as calls
from . import test_tags_compile_live as tags

pytestmark = pytest.mark.live

globals().update(
    whole("name, opens_reasoning, wanted", tags.FORMS, tags.test_the_grammar_of_an_answer_compiles)
    | whole("name, opens_reasoning", tags.CALLING, tags.test_the_grammar_of_custom_tools_compiles)
    | whole("name, thinking", calls.NAMED, calls.test_a_named_call_is_generated_and_parsed)
)
