"""What people get under `/console/` where there is no page for them: one in its look, with its
headers, that says what to do."""

from __future__ import annotations

from typing import Final

from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string

from accounts.console.page import guarded

ROOT: Final = "/console/"

_TOLD: Final = {
    400: ("This cannot be understood", "Go back, and try it another way."),
    403: (
        "You may not do this",
        "Your role does not allow it. Ask whoever leads your organisation.",
    ),
    404: (
        "There is no such page",
        "It may be gone, or you may not see it. What there is, is under the names above.",
    ),
    500: (
        "Something broke here",
        "It is not your fault. Try again in a minute; if it stays so, tell an administrator when "
        "it happened: the log says more.",
    ),
    503: (
        "The database does not answer",
        "Models are served all the same. Try again in a minute; if it stays so, tell an "
        "administrator.",
    ),
}
_OLD_FORM: Final = (
    "This form was open for too long",
    "Or it was sent from another site, or without cookies. Nothing was changed: go back, reload "
    "the page, and send it again.",
)


def is_console(request: HttpRequest) -> bool:
    """Whether somebody is looking at the console."""
    return request.path.startswith(ROOT)


def error_page(request: HttpRequest, status: int) -> HttpResponse:
    """For 400, 403, 404, 500 and 503."""
    # Where something broke, who looks can perhaps not be read.
    return _page(None if status >= 500 else request, status, *_TOLD[status])


def old_form_page(request: HttpRequest) -> HttpResponse:
    """For a form without a token that is still good."""
    return _page(request, 403, *_OLD_FORM)


def _page(request: HttpRequest | None, status: int, heading: str, advice: str) -> HttpResponse:
    context = {"heading": heading, "advice": advice}
    text = render_to_string("console/error.html", context, request)
    return guarded(HttpResponse(text, status=status))
