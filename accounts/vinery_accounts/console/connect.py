"""Connect: the settings of each client, with the address of this server and a model of it."""

import re
from typing import Any, Final

from django.template.loader import render_to_string

from vinery_accounts.access.served import for_example, visible_models
from vinery_accounts.console.page import Page, at

_CLIENT: Final = re.compile(r"^=== (.+?): (.+)\n((?:.|\n)+?)\n+(?====|\Z)", re.MULTILINE)


@at("connect/", "connect")
class Connect(Page):
    template_name = "console/connect.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        root, model = self.base_url(), for_example(visible_models(self.access))
        values = {"root": root, "base": f"{root}/v1", "key": "vny_...", "model": model}
        clients = _CLIENT.findall(render_to_string("console/clients.txt", values))
        chosen = self.request.GET.get("client")
        return (
            super().get_context_data(**kwargs)
            | values
            | {
                "clients": clients,
                "client": next((each for each in clients if each[0] == chosen), clients[0]),
            }
        )
