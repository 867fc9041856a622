"""A picture of the aims: a bar for each, as long as the part of it that was reached."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from xml.etree import ElementTree

from benchmarks.aims import Aim

_ROW_PX: Final = 24
_BAR_PX: Final = 14
_LABELS_PX: Final = 470
_UNIT_PX: Final = 200  # the length of a bar that reaches its aim
_MAX_PART: Final = 1.5  # longer bars end here
_VALUES_PX: Final = 150
_TOP_PX: Final = 28
_COLOURS: Final = {True: "#2f855a", False: "#b7791f"}
_STYLE: Final = "text { font: 13px sans-serif; fill: #333 }"


def draw(aims: Sequence[Aim]) -> str:
    """Return an SVG picture of the aims that were measured."""
    shown = [aim for aim in aims if aim.part is not None]
    width = _LABELS_PX + round(_UNIT_PX * _MAX_PART) + _VALUES_PX
    height = _TOP_PX + _ROW_PX * len(shown) + 8
    svg = ElementTree.Element(
        "svg", xmlns="http://www.w3.org/2000/svg", viewBox=f"0 0 {width} {height}", role="img"
    )
    ElementTree.SubElement(svg, "title").text = "How much of each aim was reached"
    ElementTree.SubElement(svg, "style").text = _STYLE
    _add(svg, "rect", width=width, height=height, fill="white")
    for number, aim in enumerate(shown):
        _draw_row(svg, aim, _TOP_PX + number * _ROW_PX)
    at = _LABELS_PX + _UNIT_PX
    _add(svg, "line", x1=at, x2=at, y1=_TOP_PX - 6, y2=height - 6, stroke="#333")
    _text(svg, at, _TOP_PX - 11, "aim", anchor="middle")
    ElementTree.indent(svg)
    return ElementTree.tostring(svg, encoding="unicode") + "\n"


def _draw_row(svg: ElementTree.Element, aim: Aim, top: int) -> None:
    assert aim.part is not None
    assert aim.measured is not None
    length = round(_UNIT_PX * min(aim.part, _MAX_PART), 1)
    baseline = top + _BAR_PX - 2
    _text(svg, _LABELS_PX - 8, baseline, aim.what, anchor="end")
    colour = _COLOURS[bool(aim.is_met)]
    _add(svg, "rect", x=_LABELS_PX, y=top, width=length, height=_BAR_PX, fill=colour)
    at = _LABELS_PX + round(_UNIT_PX * _MAX_PART) + 8
    _text(svg, at, baseline, f"{aim.measured:.3g} ({aim.wanted})", anchor="start")


def _text(svg: ElementTree.Element, x: int, y: int, text: str, *, anchor: str) -> None:
    _add(svg, "text", x=x, y=y, text_anchor=anchor).text = text


def _add(svg: ElementTree.Element, tag: str, **attributes: float | str) -> ElementTree.Element:
    named = {name.replace("_", "-"): str(value) for name, value in attributes.items()}
    return ElementTree.SubElement(svg, tag, named)
