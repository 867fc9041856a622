"""What small templates of known styles are found to take."""

import pytest

from serving.prompting.folder import ModelFolder

from . import templates
from .builders import MODEL, traits_of


def test_the_reference_model_takes_all_but_thoughts():
    folder = ModelFolder.read(MODEL)
    assert folder.templates is not None

    traits = traits_of(folder.templates.default)

    assert traits.has_system
    assert traits.has_many_systems
    assert traits.has_developer
    assert traits.has_tools
    assert traits.wants_argument_objects
    assert not traits.wants_parts
    assert traits.reasoning_key is None


def test_a_template_that_refuses_system_messages_has_none():
    assert not traits_of(templates.NO_SYSTEM).has_system


def test_a_template_that_drops_later_system_messages_takes_one():
    traits = traits_of(templates.LEADING_SYSTEM)

    assert traits.has_system
    assert not traits.has_many_systems


def test_printing_any_role_is_not_knowing_the_developer():
    assert not traits_of(templates.CHATML).has_developer
    assert traits_of(templates.DEVELOPER_AWARE).has_developer


def test_a_template_without_tools_is_found_out():
    assert not traits_of(templates.CHATML).has_tools
    assert traits_of(templates.TOOLS).has_tools


def test_a_template_that_reads_parts_is_given_parts():
    traits = traits_of(templates.PARTS)

    assert traits.wants_parts
    assert traits.has_system
    assert not traits_of(templates.CHATML).wants_parts


@pytest.mark.parametrize(
    ("text", "wants_objects"),
    [
        (templates.TEXT_ARGUMENTS, False),
        (templates.PRINTED_ARGUMENTS, False),
        (templates.ITEMIZED_ARGUMENTS, True),
        (templates.PRINTED_ARGUMENTS.replace("arguments }}", "arguments | tojson }}"), True),
    ],
)
def test_arguments_are_objects_where_the_template_can_write_them(text, wants_objects):
    assert traits_of(text).wants_argument_objects == wants_objects


def test_content_is_null_where_that_keeps_empty_answers_out():
    assert traits_of(templates.TEXT_ARGUMENTS).wants_null_content
    assert traits_of(templates.EMPTY_ANSWERS).wants_null_content
    assert not traits_of(templates.PRINTED_ARGUMENTS).wants_null_content


@pytest.mark.parametrize("key", ["reasoning_content", "reasoning", "thinking"])
def test_it_finds_the_name_under_which_thoughts_are_read(key):
    assert traits_of(templates.REASONING.replace("KEY", key)).reasoning_key == key


def test_a_template_that_drops_thoughts_gets_none():
    assert traits_of(templates.CHATML).reasoning_key is None
