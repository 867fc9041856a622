"""A picture of aims: a bar for each, as long as the part of the aim that was reached."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import Final

from benchmarks.aims import Aim

_ROW_PX: Final = 24
_BAR_PX: Final = 14
_LABELS_PX: Final = 500
_BARS_PX: Final = 300
_WIDTH_PX: Final = 920
_TOP_PX: Final = 28
_LEAST_PART, _MOST_PART = 1.5, 8.0  # of the longest bar; still longer ones end there
_COLOURS: Final = {True: "#2f855a", False: "#b7791f"}


def draw(title: str, aims: Sequence[Aim]) -> str:
    """Return an SVG picture of the aims that were measured."""
    return "\n".join(_lines(title, [(a, a.part) for a in aims if a.part is not None])) + "\n"


def _lines(title: str, rows: Sequence[tuple[Aim, float]]) -> Iterator[str]:
    longest = min(max([_LEAST_PART, *(part for _, part in rows)]), _MOST_PART)
    height, at = (_TOP_PX + _ROW_PX * len(rows) + 8, round(_LABELS_PX + _BARS_PX / longest, 1))
    size = f'width="{_WIDTH_PX}" height="{height}"'
    yield f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH_PX} {height}" role="img">'
    yield f"<title>{escape(title)}</title>"
    yield f'<style>text {{ font: 13px sans-serif; fill: #333 }}</style><rect {size} fill="white"/>'
    for number, (aim, part) in enumerate(rows):
        top, length = _TOP_PX + number * _ROW_PX, round(_BARS_PX * min(part / longest, 1), 1)
        colour, text = _COLOURS[bool(aim.is_met)], f"{aim.measured:.3g} ({aim.wanted})"
        bar = f'x="{_LABELS_PX}" y="{top}" width="{length}" height="{_BAR_PX}"'
        yield f'<rect {bar} fill="{colour}"/>'
        yield _text(_LABELS_PX - 8, top + _BAR_PX - 2, aim.what, "end")
        yield _text(_LABELS_PX + _BARS_PX + 8, top + _BAR_PX - 2, text, "start")
    yield f'<path d="M{at} {_TOP_PX - 6}V{height - 6}" stroke="#333"/>'
    yield _text(at, _TOP_PX - 11, "aim", "middle")
    yield "</svg>"


def _text(x: float, y: int, text: str, anchor: str) -> str:
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}">{escape(text)}</text>'
