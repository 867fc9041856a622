"""The tags of the console's templates."""

from __future__ import annotations

from django.template import Context, Template


def rendered(text: str, **context: object) -> str:
    return " ".join(Template(text).render(Context(context)).split())


def test_a_table_has_its_columns_and_figures_are_marked() -> None:
    row = "{% for each in rows %}<tr><td>{{ each }}</td></tr>{% endfor %}"

    page = rendered('{% table "Host|#Bytes|" %}' + row + "{% endtable %}", rows=["<b>"])

    assert '<tr><th>Host</th><th class="figure">Bytes</th><th></th></tr>' in page
    assert "<tbody> <tr><td>&lt;b&gt;</td></tr> </tbody>" in page
    assert page.count("<table>") == page.count("</table>") == 1


def test_names_of_columns_are_escaped() -> None:
    page = rendered("{% table columns %}{% endtable %}", columns=["<b>", "#<i>"])

    assert '<th>&lt;b&gt;</th><th class="figure">&lt;i&gt;</th>' in page


def test_an_active_row_has_a_mark_and_another_one_its_own_word() -> None:
    assert rendered('{% state 1 "disabled" %}') == '<span class="state state-active">active</span>'
    assert rendered('{% state 0 "disabled" %}') == '<span class="state">disabled</span>'
