"""Templates within a budget: the same text as without, and an early end for whatever takes long."""

from pathlib import Path
from typing import Any

import pytest

from tests.tables import table
from vinery_serving.core.errors import InvalidRequest
from vinery_serving.prompting.budget import OverBudget
from vinery_serving.prompting.capabilities import TemplateCapabilities
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
