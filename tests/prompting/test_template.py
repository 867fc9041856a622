"""Chat templates are rendered in the environment that models were trained with."""

from datetime import datetime

import pytest

from tests.tables import table
from vinery_serving.core.errors import InvalidRequest
from vinery_serving.prompting.folder import UnusableFolder
from vinery_serving.prompting.template import ChatTemplate


@table(
    "text, values, shown",
    [
        # Blocks leave no lines, and loop controls work.
        ("a\n  {% if true %}\nb\n  {% endif %}\nc", {}, "a\nb\nc"),
        (
            "{% for n in [1, 2, 3] %}{% if n == 2 %}{% continue %}{% endif %}{{ n }}{% endfor %}",
            {},
            "13",
        ),
        # JSON is plain, and takes the options of Hugging Face.
        ("{{ value | tojson }}", {"b": "<é'>", "a": None}, '{"b": "<é\'>", "a": null}'),
        (
            "{{ value | tojson(indent=1, sort_keys=true, separators=(',', '=')) }}",
            {"b": 1, "a": "é"},
            '{\n "a"="é",\n "b"=1\n}',
        ),
        ("{{ 'é' | tojson(ensure_ascii=true) }}", {}, '"\\u00e9"'),
        # Marks of training targets have no effect.
        ("a{% generation %}b{% set x = 1 %}{% endgeneration %}c{{ x }}", {}, "abc"),
    ],
)
def test_a_template_is_rendered_as_in_training(text, values, shown):
    assert ChatTemplate(text).render(value=values) == shown


@table(
    "value, shown",
    [('{"b": [1, null]}', "[1, None]"), ({"b": "as it is"}, "as it is"), ('{"b": "é"}', "é")],
)
def test_json_text_is_read(value, shown):
    assert ChatTemplate("{{ (value | from_json).b }}").render(value=value) == shown


@table("value", ["", "{", "[" * 100_000, "1" * 5_000, "[" + "[]," * 2_000_000 + "1]"])
def test_text_that_is_no_json_or_too_large_is_the_clients_mistake(value):
    with pytest.raises(InvalidRequest, match="JSON") as caught:
        ChatTemplate("{{ value | from_json }}").render(value=value)

    assert caught.value.param == "messages"


def test_the_date_can_be_set_and_named_tokens_are_variables():
    dated = ChatTemplate("{{ strftime_now('%d %b %Y') }}", now=lambda: datetime(2025, 7, 4))

    assert dated.render() == "04 Jul 2025"
    assert ChatTemplate("{{ bos_token }}x", {"bos_token": "<s>"}).render() == "<s>x"


@table(
    "text, words",
    [
        # A refusal has the template's own message.
        ("{{ raise_exception('Only two roles, please!') }}", r"^Only two roles, please!$"),
        *(
            (text, "chat template cannot render")
            for text in (
                "{{ missing.field }}",
                "{{ 'a' + 1 }}",
                "{{ 1 / 0 }}",
                "{{ [].__class__.__base__.__subclasses__() }}",
                "{{ messages.append(1) }}",
                "{{ {}['a']['b'] }}",
            )
        ),
    ],
)
def test_a_failing_template_is_an_invalid_request(text, words):
    with pytest.raises(InvalidRequest, match=words) as caught:
        ChatTemplate(text).render(messages=[])

    assert caught.value.param == "messages"


def test_a_template_that_does_not_compile_makes_the_folder_unusable():
    with pytest.raises(UnusableFolder, match=r"does not compile.*line 2"):
        ChatTemplate("a\n{% if %}")
