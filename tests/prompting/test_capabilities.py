"""Capabilities found in small templates of known styles."""

from tests.tables import table
from vinery_serving.prompting.folder import ModelFolder

from . import templates
from .builders import MODEL, capabilities_of
from .templates import CHATML, REASONING, SINGLE_CALLS, TEXT_ARGUMENTS

RAISES_FOR_TWO_CALLS = SINGLE_CALLS.replace(
    "{%- if message.content and",
    "{%- if message.tool_calls | length != 1 -%}{{ raise_exception('one') }}{%- endif -%}"
    "{%- if message.content and",
)
JSON_ARGUMENTS = templates.PRINTED_ARGUMENTS.replace("arguments }}", "arguments | tojson }}")
THINKING = REASONING.replace("KEY", "thinking")
PARTLY = "{% for message in messages %}{{ message.content | replace('a', '') }}{% endfor %}"

# A capability, the templates with it, and templates without.
CAPABILITIES = {
    # A template may refuse system messages, or drop later ones.
    "has_system": (
        [templates.LEADING_SYSTEM, templates.PARTS, templates.LISTED_TOOLS],
        [templates.NO_SYSTEM],
    ),
    "has_many_systems": ([CHATML], [templates.LEADING_SYSTEM]),
    # A template that prints any role does not know the developer.
    "has_developer": ([templates.DEVELOPER_AWARE], [CHATML]),
    "has_tools": ([templates.TOOLS, templates.LISTED_TOOLS], [CHATML]),
    "wants_parts": ([templates.PARTS], [CHATML]),
    "wants_argument_objects": (
        [
            *(templates.ITEMIZED_ARGUMENTS, JSON_ARGUMENTS, templates.LISTED_TOOLS),
            # How calls are written is found beside tools where they are shown only there.
            templates.CALLS_BESIDE_TOOLS,
        ],
        [TEXT_ARGUMENTS, templates.PRINTED_ARGUMENTS],
    ),
    # Content is null where that avoids empty answers, unless it would raise in other requests.
    "wants_null_content": (
        [TEXT_ARGUMENTS, templates.EMPTY_ANSWERS],
        [templates.PRINTED_ARGUMENTS, templates.CALLS_BESIDE_TOOLS],
    ),
    "wants_short_ids": ([templates.SHORT_IDS], [TEXT_ARGUMENTS, CHATML]),
    "wants_numbered_ids": ([templates.NUMBERED_IDS], [templates.SHORT_IDS]),
    "calls_need_tools": ([templates.CALLS_BESIDE_TOOLS], [templates.LISTED_TOOLS]),
    "needs_tool_list": ([templates.LISTED_TOOLS], [templates.TOOLS]),
    "needs_descriptions": (
        [templates.LISTED_TOOLS, templates.JOINED_DESCRIPTION],
        [templates.TOOLS],
    ),
    "wants_single_calls": ([SINGLE_CALLS, RAISES_FOR_TWO_CALLS], [TEXT_ARGUMENTS, CHATML]),
    "refuses_text_beside_reasoning": ([SINGLE_CALLS], [THINKING, TEXT_ARGUMENTS]),
}


@table("name, having, lacking", [(name, *both) for name, both in CAPABILITIES.items()])
def test_templates_show_what_they_can_render(name, having, lacking):
    assert [getattr(capabilities_of(text), name) for text in having] == [True] * len(having)
    assert [getattr(capabilities_of(text), name) for text in lacking] == [False] * len(lacking)


def test_the_reference_model_renders_all_but_reasoning():
    folder = ModelFolder.read(MODEL)
    assert folder.templates is not None

    capabilities = capabilities_of(folder.templates.default)
    for name in ("has_system", "has_many_systems", "has_developer", "has_tools"):
        assert getattr(capabilities, name)
    assert capabilities.wants_argument_objects
    assert not capabilities.wants_parts
    assert capabilities.reasoning_key is None


@table(
    "text, key",
    [
        *((REASONING.replace("KEY", k), k) for k in ("reasoning_content", "reasoning", "thinking")),
        (SINGLE_CALLS, "thinking"),
        (CHATML, None),
    ],
)
def test_it_finds_the_name_by_which_reasoning_is_read(text, key):
    assert capabilities_of(text).reasoning_key == key
