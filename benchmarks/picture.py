"""A picture of aims: a bar for each, as long as the part of the aim that was reached."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from xml.etree import ElementTree

from benchmarks.aims import Aim

_ROW_PX: Final = 24
_BAR_PX: Final = 14
_LABELS_PX: Final = 500
_BARS_PX: Final = 300
_VALUES_PX: Final = 120
_TOP_PX: Final = 28
_PARTS: Final = (1.5, 8.0)  # the longest bar; still longer ones end there
_COLOURS: Final = {True: "#2f855a", False: "#b7791f"}
_STYLE: Final = "text { font: 13px sans-serif; fill: #333 }"


def draw(title: str, aims: Sequence[Aim]) -> str:
    """Return an SVG picture of the aims that were measured."""
    parts = [(aim, part) for aim in aims if (part := aim.part) is not None]
    longest = min(max((_PARTS[0], *(part for _, part in parts))), _PARTS[1])
    height = _TOP_PX + _ROW_PX * len(parts) + 8
    width, at = _LABELS_PX + _BARS_PX + _VALUES_PX, round(_LABELS_PX + _BARS_PX / longest, 1)
    svg = ElementTree.Element(
        "svg", xmlns="http://www.w3.org/2000/svg", viewBox=f"0 0 {width} {height}", role="img"
    )
    ElementTree.SubElement(svg, "title").text = title
    ElementTree.SubElement(svg, "style").text = _STYLE
    _add(svg, "rect", width=width, height=height, fill="white")
    for number, (aim, part) in enumerate(parts):
        top = _TOP_PX + number * _ROW_PX
        length, baseline = round(_BARS_PX * min(part / longest, 1), 1), top + _BAR_PX - 2
        colour = _COLOURS[bool(aim.is_met)]
        _text(svg, _LABELS_PX - 8, baseline, aim.what, anchor="end")
        _add(svg, "rect", x=_LABELS_PX, y=top, width=length, height=_BAR_PX, fill=colour)
        values = f"{aim.measured:.3g} ({aim.wanted})"
        _text(svg, _LABELS_PX + _BARS_PX + 8, baseline, values, anchor="start")
    _add(svg, "line", x1=at, x2=at, y1=_TOP_PX - 6, y2=height - 6, stroke="#333")
    _text(svg, at, _TOP_PX - 11, "aim", anchor="middle")
    ElementTree.indent(svg)
    return ElementTree.tostring(svg, encoding="unicode") + "\n"


def _text(svg: ElementTree.Element, x: float, y: int, text: str, *, anchor: str) -> None:
    _add(svg, "text", x=x, y=y, text_anchor=anchor).text = text


def _add(svg: ElementTree.Element, tag: str, **attributes: float | str) -> ElementTree.Element:
    named = {name.replace("_", "-"): str(value) for name, value in attributes.items()}
    return ElementTree.SubElement(svg, tag, named)
