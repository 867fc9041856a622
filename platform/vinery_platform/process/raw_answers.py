"""Answers to what is refused before an application sees it. All of them end the connection."""

from typing import Final

from vinery_platform.process.connections import MAX_HEADER_BYTES, MAX_HEADER_FIELDS
from vinery_serving.http.refusals import Reason

_TEXTS: Final = {
    Reason.CONNECTIONS: (503, "Service Unavailable", "The server has too many connections."),
    Reason.ADDRESS: (503, "Service Unavailable", "Your address has too many connections."),
    Reason.HEADER_TIMEOUT: (
        *(408, "Request Timeout"),
        "The headers of the request did not arrive in time.",
    ),
    Reason.HEADERS_TOO_LARGE: (
        *(431, "Request Header Fields Too Large"),
        f"The request line and the headers may have {MAX_HEADER_BYTES // 1024} KiB and "
        f"{MAX_HEADER_FIELDS} fields. Send fewer or shorter ones.",
    ),
    Reason.PIPELINED: (
        *(429, "Too Many Requests"),
        "Too much was sent before the answer. Wait for each answer, or use more connections.",
    ),
}
_MALFORMED: Final = (
    *(400, "Bad Request"),
    "This is no request of HTTP/1.1 with one `Host` header, or of HTTP/1.0.",
)


def answer_for(reason: Reason) -> bytes:
    """The whole answer, with its status line."""
    status, phrase, text = _TEXTS.get(reason, _MALFORMED)
    lines = [f"HTTP/1.1 {status} {phrase}", "content-type: text/plain; charset=utf-8"]
    if status == 503:
        lines.append("retry-after: 1")
    lines += [f"content-length: {len(text)}", "connection: close", "", text]
    return "\r\n".join(lines).encode()
