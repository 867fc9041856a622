"""The protocols of OpenAI's and Anthropic's clients: no I/O, no clock and no randomness."""

from collections.abc import Callable, Mapping

from vinery_serving.core.dialects import Dialect
from vinery_serving.core.request import Endpoint
from vinery_serving.protocols import chat, completions
from vinery_serving.protocols.common.encoding import Exchange
from vinery_serving.protocols.messages import exchange as messages
from vinery_serving.protocols.responses import exchange as responses

_PARSERS: Mapping[Endpoint, Callable[..., Exchange]] = {
    Endpoint.CHAT: chat.parse,
    Endpoint.COMPLETIONS: completions.parse,
    Endpoint.RESPONSES: responses.parse,
    Endpoint.MESSAGES: messages.parse,
}


def parse(
    endpoint: Endpoint, body: bytes, dialect: Dialect, *, fingerprint: str | None = None
) -> Exchange:
    """Read the JSON body of a request to `endpoint`.

    `fingerprint` is the answer's `system_fingerprint`, if the protocol has one: a constant such
    as `vinery-0.1`. Raises `InvalidRequest` with the path of the field in `param`.
    """
    return _PARSERS[endpoint](body, dialect, fingerprint=fingerprint)
