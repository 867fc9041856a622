"""The pixels of requests whose `Submit` has not come yet.

They come in parts, between messages of other requests, see `transport.client`.
"""

from typing import Final

from vinery_serving.core.media import MAX_MEDIA_BYTES
from vinery_serving.transport.messages import MediaPixels, Submit
from vinery_serving.transport.server import Connection

# Of all requests that are still arriving.
_MAX_ARRIVING_BYTES: Final = 1 << 30


class PixelsRefused(Exception):
    """There were too many pixels to hold. The client may try again."""


class ArrivingPixels:
    """Bytes by connection and request. Those of a request that got too many are dropped."""

    def __init__(self) -> None:
        self._parts: dict[tuple[int, int], bytearray | None] = {}  # None: too many
        self._num_bytes = 0

    def add(self, connection: Connection, message: MediaPixels) -> None:
        key = (id(connection), message.id)
        held = self._parts.setdefault(key, bytearray())
        if held is None:
            return
        num_new = len(message.pixels)
        if len(held) + num_new > MAX_MEDIA_BYTES or self._num_bytes + num_new > _MAX_ARRIVING_BYTES:
            self._num_bytes -= len(held)
            self._parts[key] = None
            return
        held += message.pixels
        self._num_bytes += num_new

    def take(self, connection: Connection, submit: Submit) -> bytes:
        """Return the bytes of all media of a request. Raises PixelsRefused, or ValueError if there
        are not as many bytes as the media have."""
        key = (id(connection), submit.id)
        has_come = key in self._parts
        held = self._parts.get(key)
        self.drop(connection, submit.id)
        if has_come and held is None:
            raise PixelsRefused
        pixels = bytes(held or b"")
        if len(pixels) != sum(each.num_bytes for each in submit.media):
            raise ValueError("The pictures of the request do not have the number of bytes.")
        return pixels

    def drop(self, connection: Connection, id_: int) -> None:
        held = self._parts.pop((id(connection), id_), None)
        self._num_bytes -= len(held or b"")

    def drop_all(self, connection: Connection) -> None:
        for key in [key for key in self._parts if key[0] == id(connection)]:
            self.drop(connection, key[1])
