"""Wire formats and the inner form, both ways. Pure: no I/O, no clock, no randomness."""

from __future__ import annotations

from collections.abc import Mapping

from serving.core.request import Dialect, Endpoint
from serving.protocols import chat, completions, responses
from serving.protocols.base import Encoder, Exchange, Parse
from serving.protocols.errors import error_body, error_headers

__all__ = ["Encoder", "Exchange", "error_body", "error_headers", "parse"]

_PARSERS: Mapping[Endpoint, Parse] = {
    Endpoint.CHAT: chat.parse,
    Endpoint.COMPLETIONS: completions.parse,
    Endpoint.RESPONSES: responses.parse,
}


def parse(
    endpoint: Endpoint, body: bytes, dialect: Dialect, *, fingerprint: str | None = None
) -> Exchange:
    """Read the JSON body of a request to `endpoint`.

    `fingerprint` is the answer's `system_fingerprint`, where the protocol has one: a
    constant such as `vinery-0.1`. Raises `InvalidRequest` with the field's path in
    `param`.
    """
    return _PARSERS[endpoint](body, dialect, fingerprint=fingerprint)
