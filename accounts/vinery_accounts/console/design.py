"""The parts of all pages on one page, drawn by the templates and the style sheet themselves."""

import re
from pathlib import Path
from typing import Any, Final

from django import forms
from django.contrib.staticfiles import finders

from vinery_accounts.console.page import Page, at
from vinery_accounts.resources.base import require_administrator

_COLOUR: Final = re.compile(r"--([\w-]+): light-dark\((#\w+), (#\w+)\)")
_SIZE: Final = re.compile(r"--([\w-]+): ([\d.]+)rem")


@at("design/", "design")
class Design(Page):
    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        require_administrator(self.access)
        tokens = Path(str(finders.find("console/tokens.css"))).read_text(encoding="utf-8")
        return super().get_context_data(**kwargs) | {
            "colours": {name: shades for name, *shades in _COLOUR.findall(tokens)},
            "sizes": _SIZE.findall(tokens),
            "form": _Example({"name": "a name", "period": "day", "mark": "two words"}),
        }


class _Example(forms.Form):
    name = forms.CharField(help_text="A sentence that says what the field is good for.")
    mark = forms.SlugField(required=False)
    period = forms.ChoiceField(choices=[("day", "Day"), ("week", "Week")])
    is_on = forms.BooleanField(label="A switch", required=False)
