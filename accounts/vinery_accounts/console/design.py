"""The parts of all pages on one page, drawn by the templates and the style sheet themselves."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from django import forms
from django.contrib.staticfiles import finders

from vinery_accounts.console.page import Page, at
from vinery_accounts.resources.base import require_administrator

_COLOUR: Final = re.compile(r"--([\w-]+): light-dark\((#\w+), (#\w+)\)")
_SIZE: Final = re.compile(r"--([\w-]+): ([\d.]+)rem")
# What stands on what, and the least contrast of WCAG AA.
_PAIRS: Final = (
    *((("text", ground), 4.5) for ground in ("ground", "card", "raised", "hover", "soft")),
    *((("quiet", ground), 4.5) for ground in ("ground", "card", "raised", "hover")),
    *((("accent", ground), 4.5) for ground in ("ground", "card", "soft")),
    (("on-accent", "accent"), 4.5),
    *(((kind, f"{kind}-soft"), 4.5) for kind in ("good", "warn", "bad")),
    *(((kind, "card"), 4.5) for kind in ("good", "warn", "bad")),
    (("field", "card"), 3.0),
)


@at("design/", "design")
class Design(Page):
    template_name = "console/design.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        require_administrator(self.access)
        found = finders.find("console/tokens.css")
        tokens = Path(str(found)).read_text(encoding="utf-8")
        colours = {name: shades for name, *shades in _COLOUR.findall(tokens)}
        return super().get_context_data(**kwargs) | {
            "colours": colours,
            "sizes": _SIZE.findall(tokens),
            "pairs": list(contrasts(colours)),
            "form": _Example({"name": "a name", "period": "day", "mark": "two words"}),
        }


class _Example(forms.Form):
    name = forms.CharField(help_text="A sentence that says what the field is good for.")
    mark = forms.SlugField(required=False)
    period = forms.ChoiceField(choices=[("day", "Day"), ("week", "Week")])
    is_on = forms.BooleanField(label="A switch", required=False)


def contrasts(colours: Mapping[str, list[str]]) -> Iterator[tuple[str, str, list[float], float]]:
    """Yield what stands on what, the contrast in light and in dark, and the least one."""
    for (front, ground), least in _PAIRS:
        pairs = zip(colours[front], colours[ground], strict=True)
        yield front, ground, [contrast(*pair) for pair in pairs], least


def contrast(one: str, other: str) -> float:
    """Return the contrast of two colours such as `#fff` by WCAG 2.2, from 1 to 21."""
    dark, light = sorted(map(_luminance, (one, other)))
    return round((light + 0.05) / (dark + 0.05), 1)


def _luminance(colour: str) -> float:
    digits = colour[1:] if len(colour) == 7 else "".join(2 * each for each in colour[1:])
    parts = (int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4))
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
