"""Template tags of the console's pages: tables, and whether a row is active."""

from collections.abc import Iterable

from django.template import Library
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

register = Library()


@register.simple_block_tag
def table(content: str, columns: str | Iterable[str]) -> SafeString:
    """Return a table around its rows. `columns` are the names of the columns, as a list or
    separated by `|`: `#Bytes` has figures, and a column of buttons has no name. On phones each row
    becomes a card, in which `data-name` of a cell names its column."""
    names = columns.split("|") if isinstance(columns, str) else columns
    heads = format_html_join("", "<th{}>{}</th>", map(_head, names))
    return format_html(
        '<div class="table">\n<table>\n  <thead><tr>{}</tr></thead>\n'
        "  <tbody>\n{}  </tbody>\n</table>\n</div>",
        heads,
        content,
    )


def _head(name: str) -> tuple[str, str]:
    is_figure = name.startswith("#")
    return format_html(' class="figure"') if is_figure else "", name.removeprefix("#")


@register.simple_tag
def state(is_active: bool, otherwise: str) -> SafeString:  # noqa: FBT001
    """Return the mark and the word of an active row, or the word for another one."""
    kind, word = ("state state-active", "active") if is_active else ("state", otherwise)
    return format_html('<span class="{}">{}</span>', kind, word)
