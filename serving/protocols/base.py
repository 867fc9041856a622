"""What every protocol gives its door: a parsed request, and the two ways to answer it.

The door calls `parse`, runs `exchange.request`, and writes either every frame of
`exchange.encoder(head)` or one `exchange.body(head, result)`. Streamed and unary answers
are made from the same events, and carry the same ids, because ids derive from the head.
"""

from __future__ import annotations

from typing import Protocol

from serving.core.events import Event
from serving.core.ids import AnswerIdentity
from serving.core.request import Dialect, GenerationRequest
from serving.core.result import Result


class Encoder(Protocol):
    """Turns events into server-sent events. Holds all state of one stream."""

    def feed(self, event: Event) -> bytes:
        """The frames that this event causes, complete with blank lines; b"" for none.

        `Completed` and `Failed` end the stream: their frames include the closing
        `[DONE]`, and nothing may be fed after them.
        """


class Exchange(Protocol):
    """One parsed request, with what its answer must repeat of it."""

    @property
    def request(self) -> GenerationRequest:
        """The request in the inner form."""

    def encoder(self, head: AnswerIdentity) -> Encoder:
        """A new encoder for the streamed answer."""

    def body(self, head: AnswerIdentity, result: Result) -> bytes:
        """The JSON body of the unary answer."""


class Parse(Protocol):
    """Reads a JSON body. Raises `InvalidRequest` with the field's path in `param`.

    `fingerprint` is what answers carry as their `system_fingerprint`.
    """

    def __call__(
        self, body: bytes, dialect: Dialect, *, fingerprint: str | None = None
    ) -> Exchange: ...
