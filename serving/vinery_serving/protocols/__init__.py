"""The protocols of OpenAI's and Anthropic's clients: no I/O, no clock and no randomness."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from vinery_serving.core.dialects import Dialect
from vinery_serving.core.memory import NO_MEMORY, Memory
from vinery_serving.core.tasks import COMPACT, Endpoint
from vinery_serving.protocols import chat, completions
from vinery_serving.protocols.messages import exchange as messages
from vinery_serving.protocols.responses import exchange as responses
from vinery_serving.protocols.responses.exchange import Unrecalled

# A parsed request, with the values that the answer repeats. All have `request`, `keep_alive` (the
# bytes that keep an idle stream open), `to_keep` (stored with the answer; None: it is not stored),
# `encoder` for a streamed answer, and `body`, the JSON of a whole one.
Exchange = (
    chat.ChatExchange
    | completions.CompletionsExchange
    | messages.MessagesExchange
    | responses.ResponsesExchange
)
PARSERS: Final[Mapping[str, Callable[..., Exchange | Unrecalled]]] = {
    Endpoint.CHAT: chat.parse,
    Endpoint.COMPLETIONS: completions.parse,
    Endpoint.RESPONSES: responses.parse,
    COMPACT: partial(responses.parse, is_compact=True),
    Endpoint.MESSAGES: messages.parse,
}


def parse(
    endpoint: str,
    body: bytes,
    dialect: Dialect,
    *,
    fingerprint: str | None = None,
    memory: Memory = NO_MEMORY,
) -> Exchange | Unrecalled:
    """Read the JSON body of a request to `endpoint`. `fingerprint` is the answer's
    `system_fingerprint`, if the protocol has one: a constant such as `vinery-0.1`. Raises
    `InvalidRequest` with the path of the field in `param`."""
    return PARSERS[endpoint](body, dialect, fingerprint=fingerprint, memory=memory)
