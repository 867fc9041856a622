"""What one request said and is answered, for a project that keeps it: cut, and in memory."""

from __future__ import annotations

from accounts.captures.store import MAX_TEXT_BYTES, CapturedRequest
from accounts.usage.entries import Admission


class CapturedExchange:
    """`answered` with all bytes of the answer in order, then `taken` once."""

    def __init__(self, body: bytes) -> None:
        self._num_body_bytes = len(body)
        self._body = body[:MAX_TEXT_BYTES]
        self._answer = bytearray()
        self.num_answer_bytes = 0
        self.model = ""  # that really serves

    def answered(self, data: bytes) -> None:
        """The client was sent this."""
        self.num_answer_bytes += len(data)
        room = MAX_TEXT_BYTES - len(self._answer)
        if room > 0:
            self._answer += data[:room]

    def taken(self, admission: Admission, project_id: int) -> CapturedRequest:
        """All of it, for the queue."""
        return CapturedRequest(
            request_id=admission.request_id,
            project_id=project_id,
            created_at=admission.started_at,
            dialect=admission.dialect,
            endpoint=admission.endpoint,
            model=self.model,
            body=self._body,
            answer=bytes(self._answer),
            num_body_bytes=self._num_body_bytes,
            num_answer_bytes=self.num_answer_bytes,
        )
