"""Chat templates are rendered in the environment that models were trained with, also within a
budget, which ends early whatever takes long."""

from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.tables import table
from vinery_serving.core.errors import InvalidRequest
from vinery_serving.prompting.budget import OverBudget
from vinery_serving.prompting.capabilities import TemplateCapabilities
from vinery_serving.prompting.folder import UnusableFolder
from vinery_serving.prompting.template import ChatTemplate, TemplateWords

_TESTS = Path(__file__).resolve().parents[1]
TEMPLATES = sorted(
    path for path in (*_TESTS.rglob("*.jinja"), *_TESTS.parent.glob("models/*/*.jinja"))
)
_LONG = [{"role": "user", "content": "x" * 3000}]
_LOOP, _END = "{% for i in range(100000) %}", "{% endfor %}"
_S = "{% set ns = namespace(s='aaaaaaaa', l=[1]) %}{% for i in range(99) %}"
_Y = "{% set s = '" + "y" * 15000 + "' %}" + _LOOP


def frugal(text: str) -> ChatTemplate:
    return ChatTemplate(text, words=TemplateWords(frozenset(), frozenset()), is_frugal=True)


@table("path", TEMPLATES)
def test_the_templates_of_models_render_as_without_a_budget(path):
    text = path.read_text()
    whole, careful = ChatTemplate(text), frugal(text)
    num_texts = 0

    def both(**variables: Any) -> str:
        nonlocal num_texts
        texts = []
        for template in (whole, careful):
            try:
                texts.append(template.render(**variables))
            except InvalidRequest as error:
                texts.append(error.message)
        assert texts[0] == texts[1]
        num_texts += 1
        return whole.render(**variables)

    TemplateCapabilities(text, both)
    assert num_texts > 10


@table(
    "text",
    [
        _LOOP * 2 + _END * 2,
        "{% for i in range(100000) if false %}{% endfor %}" * 3,
        "{% for a in [1] recursive %}{{ loop([1, 2]) }}{{ loop([1, 2]) }}{% endfor %}",
        "{% macro f(n) %}{% if n %}{{ f(n-1) }}{{ f(n-1) }}{% endif %}{% endmacro %}{{ f(60) }}",
        "{{ 'a' * 10**10 }}",
        "{{ 9**9**9 }}",
        "{{ '%1000000000d' % 1 }}",
        "{{ '%1000000000d' is divisibleby(3) }}",
        "{{ '%1000000000d'|format(1) }}",
        "{{ '{:>1000000000}'.format(1) }}",
        "{{ 'a'|center(10**9) }}",
        "{{ 'a'.ljust(1000000000) }}",
        "{{ 'a'|indent(1000000000, true) }}",
        "{{ messages|map('center', 1000000000)|list }}",
        "{{ [1]|tojson(indent=1000000000) }}",
        "{{ lipsum(1000000) }}",
        "{{ {}.fromkeys(range(100000)) }}",
        "{{ strftime_now('%60000d' * 1000) }}",
        _S + "{% set ns.s = ns.s + ns.s %}" + _END,
        _S + "{% set ns.s = ns.s ~ ns.s %}" + _END,
        _S + "{% set ns.s = ns.s.replace('a', ns.s) %}" + _END,
        _S + "{% set ns.s = ns.s|replace('a', ns.s) %}" + _END,
        _S + "{% set ns.s = ns.s.join(ns.s) %}" + _END,
        _S + "{% set ns.s = ns.s|join(ns.s) %}" + _END,
        _S + "{% set ns.s %}{{ ns.s }}{{ ns.s }}{% endset %}" + _END,
        _S + "{% set ns.l = [ns.l, ns.l] %}" + _END + "{{ ns.l }}",
        _S + "{% set ns.l = ns.l + ns.l %}" + _END,
        _S + "{% set ns.l = namespace(a=ns.l, b=ns.l) %}" + _END + "{{ ns.l }}",
        _S + "{% set ns.l = namespace(a=[ns.l, ns.l]) %}" + _END + "{{ ns.l.a == 1 }}",
        "{{ range(100000)|map('string')|map('upper')|list|length }}",
        "{{ 'x' in range(100000) }}{{ 'x' in range(100000) }}{{ 'x' in range(100000) }}",
        "{{ range(100000)|sort|first }}",
        "{{ ''.join(range(100000)|map('string')) }}",
        _LOOP + "y" * 15000 + _END,
        "{% macro m() %}" + "y" * 15000 + "{% endmacro %}" + _LOOP + "{{ m() }}" + _END,
        _Y + "{{ s[1:] == s[:-1] }}" + _END,
        _Y + "{% set t = s.upper().split('y') %}" + _END,
        _Y + "{% if s is eq(s) %}{% endif %}" + _END,
        "{% for i in range(3000) %}{{ messages|tojson }}" + _END,
        "{% for i in range(3000) %}{{ messages }}" + _END,
        "{% block a %}{{ self.a() }}{% endblock %}",
        "{{ a" + "|upper" * 2000 + " }}",
        "y" * 20001,
    ],
)
def test_what_takes_long_ends_early(text):
    with pytest.raises(OverBudget):
        frugal(text).render(messages=_LONG)


def test_each_rendering_has_the_whole_budget():
    template = frugal("{% for i in range(20000) %}{{ i }}{% endfor %}")
    for _ in range(3):
        assert template.render().endswith("19999")


# -- Without a budget ---------------------------------------------------------------------


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
