"""The bytes of a file of a hub's repository, from any of its bytes on."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import huggingface_hub

from vinery_serving.models.hub.client import Hub
from vinery_serving.models.hub.repository import Repository
from vinery_serving.models.hub.transfer import Stream, WrongContent

_CONTENT_RANGE: Final = re.compile(r"bytes (\d+)-\d+/(?:\d+|\*)")
_BEYOND_THE_END: Final = 416


@dataclass(frozen=True, slots=True)
class HubFile:
    """A file, as a source of a transfer."""

    hub: Hub
    repository: Repository
    path: str

    @contextmanager
    def open(self, start: int, stall_s: float) -> Iterator[Stream]:
        """See `Source`. Without compression, so that a byte of the response is one of the file."""
        headers = {"Accept-Encoding": "identity"}
        if start:
            headers["Range"] = f"bytes={start}-"
        with (
            self.hub.explained(self.repository),
            self.hub.get(self.repository, self.path, headers, stall_s) as response,
        ):
            yield stream_of(response, start, self.path)


def stream_of(response: Any, start: int, path: str) -> Stream:
    """Return the stream of a response of HTTP to a request from `start` on. Raises `WrongContent`
    for a response that begins elsewhere, and the errors of `huggingface_hub`."""
    if response.status_code == _BEYOND_THE_END:
        raise WrongContent(f"{path} is shorter than listed.")
    huggingface_hub.utils.hf_raise_for_status(response)
    first = 0
    if response.status_code == 206:
        found = _CONTENT_RANGE.fullmatch(response.headers.get("content-range", ""))
        if found is None or int(found[1]) > start:
            raise WrongContent(f"The response for {path} begins elsewhere than was asked for.")
        first = int(found[1])
    return Stream(first, response.iter_raw())
