"""Capabilities found in small templates of known styles."""

import pytest

from vinery_serving.prompting.folder import ModelFolder

from . import templates
from .builders import MODEL, capabilities_of


def test_the_reference_model_renders_all_but_reasoning():
    folder = ModelFolder.read(MODEL)
    assert folder.templates is not None

    capabilities = capabilities_of(folder.templates.default)

    assert capabilities.has_system
    assert capabilities.has_many_systems
    assert capabilities.has_developer
    assert capabilities.has_tools
    assert capabilities.wants_argument_objects
    assert not capabilities.wants_parts
    assert capabilities.reasoning_key is None


def test_a_template_may_refuse_system_messages():
    assert not capabilities_of(templates.NO_SYSTEM).has_system


def test_a_template_may_drop_later_system_messages():
    capabilities = capabilities_of(templates.LEADING_SYSTEM)

    assert capabilities.has_system
    assert not capabilities.has_many_systems


def test_a_template_that_prints_any_role_does_not_know_the_developer():
    assert not capabilities_of(templates.CHATML).has_developer
    assert capabilities_of(templates.DEVELOPER_AWARE).has_developer


def test_a_template_may_lack_tools():
    assert not capabilities_of(templates.CHATML).has_tools
    assert capabilities_of(templates.TOOLS).has_tools


def test_a_template_may_read_parts():
    capabilities = capabilities_of(templates.PARTS)

    assert capabilities.wants_parts
    assert capabilities.has_system
    assert not capabilities_of(templates.CHATML).wants_parts


@pytest.mark.parametrize(
    ("text", "wants_objects"),
    [
        (templates.TEXT_ARGUMENTS, False),
        (templates.PRINTED_ARGUMENTS, False),
        (templates.ITEMIZED_ARGUMENTS, True),
        (templates.PRINTED_ARGUMENTS.replace("arguments }}", "arguments | tojson }}"), True),
    ],
)
def test_arguments_are_objects_where_the_template_renders_them(text, wants_objects):
    assert capabilities_of(text).wants_argument_objects == wants_objects


def test_content_is_null_where_that_avoids_empty_answers():
    assert capabilities_of(templates.TEXT_ARGUMENTS).wants_null_content
    assert capabilities_of(templates.EMPTY_ANSWERS).wants_null_content
    assert not capabilities_of(templates.PRINTED_ARGUMENTS).wants_null_content


@pytest.mark.parametrize("key", ["reasoning_content", "reasoning", "thinking"])
def test_it_finds_the_name_by_which_reasoning_is_read(key):
    assert capabilities_of(templates.REASONING.replace("KEY", key)).reasoning_key == key


def test_a_template_may_drop_reasoning():
    assert capabilities_of(templates.CHATML).reasoning_key is None


@pytest.mark.parametrize(
    "text",
    [
        "{{ messages[-1].content }}",
        "{% for message in messages %}{{ message.content[:1000] }}{% endfor %}",
        "{% for message in messages[-10:] %}{{ message.content }}{% endfor %}",
        "{% for message in messages %}{{ message.content | replace('a', '') }}{% endfor %}",
        "{% if tools %}{{ messages[-1].content }}{% else %}{{ messages }}{% endif %}",
    ],
)
def test_a_template_may_leave_out_a_part_of_the_questions(text):
    assert not capabilities_of(text).shows_questions


@pytest.mark.parametrize("text", [templates.CHATML, templates.NO_SYSTEM, templates.PARTS])
def test_most_templates_show_all_questions(text):
    assert capabilities_of(text).shows_questions


def test_a_template_may_demand_short_ids_of_calls():
    assert capabilities_of(templates.SHORT_IDS).wants_short_ids
    assert not capabilities_of(templates.TEXT_ARGUMENTS).wants_short_ids
    assert not capabilities_of(templates.CHATML).wants_short_ids


def test_how_calls_are_written_is_found_beside_tools_where_they_are_shown_only_there():
    capabilities = capabilities_of(templates.CALLS_BESIDE_TOOLS)

    assert capabilities.calls_need_tools
    assert capabilities.wants_argument_objects
    # Null content would raise in a request without tools.
    assert not capabilities.wants_null_content


def test_a_template_may_need_a_list_of_tools():
    capabilities = capabilities_of(templates.LISTED_TOOLS)

    assert capabilities.needs_tool_list
    assert capabilities.has_system
    assert capabilities.has_tools
    assert capabilities.wants_argument_objects
    assert not capabilities.calls_need_tools
    assert not capabilities_of(templates.TOOLS).needs_tool_list


@pytest.mark.parametrize("text", [templates.LISTED_TOOLS, templates.JOINED_DESCRIPTION])
def test_a_template_may_need_descriptions(text):
    assert capabilities_of(text).needs_descriptions
    assert not capabilities_of(templates.TOOLS).needs_descriptions


RAISES_FOR_TWO_CALLS = templates.SINGLE_CALLS.replace(
    "{%- if message.content and",
    "{%- if message.tool_calls | length != 1 -%}{{ raise_exception('one') }}{%- endif -%}"
    "{%- if message.content and",
)


@pytest.mark.parametrize("text", [templates.SINGLE_CALLS, RAISES_FOR_TWO_CALLS])
def test_a_template_may_take_one_call_in_a_turn(text):
    assert capabilities_of(text).wants_single_calls
    assert not capabilities_of(templates.TEXT_ARGUMENTS).wants_single_calls
    assert not capabilities_of(templates.CHATML).wants_single_calls


def test_a_template_may_refuse_text_beside_reasoning():
    assert capabilities_of(templates.SINGLE_CALLS).reasoning_key == "thinking"
    assert capabilities_of(templates.SINGLE_CALLS).refuses_text_beside_reasoning
    for text in (templates.REASONING.replace("KEY", "thinking"), templates.TEXT_ARGUMENTS):
        assert not capabilities_of(text).refuses_text_beside_reasoning
