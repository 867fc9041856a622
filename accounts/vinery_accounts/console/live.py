"""Pages that stay up to date: a script fetches them again, and replaces what has changed.

Parts of such a page are elements with an id and the attribute `data-live`. The script asks with the
header `X-Live`, and gets the content without its frame, so that no message about an action is lost.
Without scripts, a reload shows the same.
"""

from typing import Any

from vinery_accounts.console.page import Page


class LivePage(Page):
    """A page whose template extends `layout`."""

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        is_refresh = "x-live" in self.request.headers
        layout = "console/live.html" if is_refresh else "console/base.html"
        return super().get_context_data(**kwargs) | {"layout": layout}
