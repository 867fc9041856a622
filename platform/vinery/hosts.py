"""Which requests must name one of this server's hosts: all but those of the API.

The check keeps web pages from reaching the admin's cookies under a name of their own. API
clients send a key and no cookies, and come by whatever name a proxy or a container
network gives this server; generation, which goes past Django, has never asked for it.
"""

from __future__ import annotations

from django.http import HttpRequest, HttpResponsePermanentRedirect
from django.middleware.common import CommonMiddleware

_TREES = ("/v1", "/v3")


def _is_api(path: str) -> bool:
    """Whether a path belongs to one of the two URL trees."""
    return path.startswith(_TREES) and path[3:4] in ("", "/")


class HostCheckMiddleware(CommonMiddleware):
    """Django's own, which checks the host, except for the URL trees of the API."""

    def process_request(self, request: HttpRequest) -> HttpResponsePermanentRedirect | None:
        """None, or a redirect. Raises `DisallowedHost`."""
        if _is_api(request.path):
            return None
        return super().process_request(request)
