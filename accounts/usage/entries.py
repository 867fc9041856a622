"""What a usage journal says, one JSON object to a line.

Journals outlive upgrades of the program that wrote them: every field added later needs a
default. Standard library and msgspec only.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import assert_never

import msgspec

from accounts.base.outcomes import Outcome as Outcome

logger = logging.getLogger(__name__)


# request_id, then num_prompt_tokens, num_cached_tokens, num_output_tokens and
# num_reasoning_tokens so far.
Progress = tuple[str, int, int, int, int]


class Admission(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="admission"):
    """A request was let in. `request_id` is unique for ever; None ids are anonymous."""

    request_id: str
    user_id: int | None
    username: str
    key_id: int | None
    key_name: str
    model: str
    endpoint: str
    dialect: str
    is_streamed: bool
    started_at: datetime
    project_id: int | None = None
    project_name: str = ""
    organization_id: int | None = None
    organization_name: str = ""
    ip: str | None = None
    asked_model: str = ""  # as the client named it
    client_request_id: str = ""
    num_request_bytes: int = 0

    def __post_init__(self) -> None:
        if self.started_at.tzinfo is None:
            raise ValueError("started_at needs a time zone")


class Checkpoint(msgspec.Struct, frozen=True, tag="checkpoint"):
    """What running requests have used so far."""

    progress: tuple[Progress, ...]


class BoundLimit(msgspec.Struct, frozen=True):
    """A limit that refused a request, or in shadow would have."""

    limit_id: int
    scope: str  # such as "key:12"
    metric: str
    window: str
    amount: int
    level: float  # what was used of it
    needed: float
    wait_s: float | None  # None: it would never have fitted
    is_shadow: bool = False


class Settlement(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="settlement"):
    """A request has ended: with its admission, the whole usage row."""

    admission: Admission
    outcome: Outcome
    http_status: int | None
    num_prompt_tokens: int = 0
    num_cached_tokens: int = 0
    num_output_tokens: int = 0
    num_reasoning_tokens: int = 0
    queue_ms: float | None = None
    first_token_ms: float | None = None
    total_ms: float | None = None
    error_code: str = ""
    finish_reason: str = ""
    inter_token_ms: float | None = None
    prefill_ms: float | None = None
    num_image_tokens: int = 0
    num_audio_tokens: int = 0
    energy_mj: int | None = None  # millijoules; None: not measured
    num_response_bytes: int = 0
    # None: nobody has weighed them, and they count what they do when the row is stored.
    weighted_tokens: float | None = None
    is_exact: bool = True  # False: known from the last checkpoint of a process that died
    bound_limits: tuple[BoundLimit, ...] = ()


Entry = Admission | Checkpoint | Settlement

_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(Entry)


def encode(entry: Entry) -> bytes:
    """One line, with its newline. JSON has no newline inside, so a line is an entry."""
    try:
        return _ENCODER.encode(entry) + b"\n"
    except UnicodeEncodeError:
        # A client's model name may hold half a surrogate pair, which is JSON but not UTF-8.
        return _ENCODER.encode(_mended(msgspec.to_builtins(entry))) + b"\n"


def decode(line: bytes) -> Entry | None:
    """The entry of one line without its newline; None for a line that is not an entry."""
    try:
        entry: Entry = _DECODER.decode(line)
    except msgspec.MsgspecError:
        return None
    return entry


def entries_in(lines: bytes) -> Iterator[Entry]:
    """The entries of whole lines. A line that is damaged is told to the log and left out."""
    for line in lines.splitlines():
        entry = decode(line)
        if entry is None:
            logger.error("left out a damaged line of %d bytes in a usage journal", len(line))
        else:
            yield entry


class OpenRequests:
    """The requests that are admitted and not yet settled, with their last checkpoint."""

    def __init__(self) -> None:
        self._admissions: dict[str, Admission] = {}
        self._progress: dict[str, Progress] = {}

    def __len__(self) -> int:
        return len(self._admissions)

    def take(self, entry: Entry) -> None:
        """Apply one entry. Repeats of an entry, and checkpoints of strangers, are harmless. The
        last admission of a request counts: which model serves it may be known a little later."""
        match entry:
            case Admission(request_id=request_id):
                self._admissions[request_id] = entry
            case Checkpoint(progress=progress):
                self._progress.update((p[0], p) for p in progress if p[0] in self._admissions)
            case Settlement(admission=admission):
                self._admissions.pop(admission.request_id, None)
                self._progress.pop(admission.request_id, None)
            case _:
                assert_never(entry)

    def entries(self) -> Iterator[Entry]:
        """What a new journal must begin with to know the same."""
        yield from self._admissions.values()
        if self._progress:
            yield Checkpoint(tuple(self._progress.values()))

    def interrupted(self, lost: Mapping[str, Progress]) -> Iterator[Settlement]:
        """The settlements of requests that nobody will settle any more. `lost` is what their
        engines know of them, which is all; else the last checkpoint has to do."""
        for request_id, admission in self._admissions.items():
            none = (request_id, 0, 0, 0, 0)
            noted, told = self._progress.get(request_id, none), lost.get(request_id, none)
            counts = [max(pair) for pair in zip(noted[1:], told[1:], strict=True)]
            if request_id in lost:
                # The checkpoint may be of an engine that died before this one, and nobody pays
                # for what that one made of a request that was run again.
                counts[2] = told[3]
                counts[3] = min(noted[4], told[3])
            yield Settlement(
                admission=admission,
                outcome=Outcome.INTERRUPTED,
                http_status=None,
                num_prompt_tokens=counts[0],
                num_cached_tokens=counts[1],
                num_output_tokens=counts[2],
                num_reasoning_tokens=counts[3],
                is_exact=request_id in lost,
            )


def _mended(value: object) -> object:
    match value:
        case str():
            return value.encode("utf-8", "replace").decode("utf-8")
        case dict():
            return {key: _mended(item) for key, item in value.items()}
        case list() | tuple():
            return [_mended(item) for item in value]
        case _:
            return value
