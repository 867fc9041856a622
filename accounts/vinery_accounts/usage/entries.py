"""The entries of a usage journal, one JSON object to a line.

A journal may outlive an upgrade of the program, so each later field needs a default. Standard
library and msgspec only."""

import json
import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, assert_never

import msgspec

from vinery_accounts.base.errors import Outcome as Outcome
from vinery_accounts.base.limit_table import MAX_WEIGHT

logger = logging.getLogger(__name__)


class Owners(msgspec.Struct, frozen=True, kw_only=True):
    """The owners of a request. None: the request is anonymous."""

    user_id: int | None
    key_id: int | None
    project_id: int | None = None
    organization_id: int | None = None


class TokenCounts(msgspec.Struct, frozen=True):
    """The tokens of a request, or of several. Cached, image, video and audio tokens are part of the
    prompt tokens, reasoning tokens of the output tokens. What has counts extends this class:
    entries of the journal, whose fields have the names of columns, reservations of limits, and
    figures of reports."""

    num_prompt_tokens: int = 0
    num_output_tokens: int = 0
    num_cached_tokens: int = 0
    num_reasoning_tokens: int = 0
    num_image_tokens: int = 0
    num_video_tokens: int = 0
    num_audio_tokens: int = 0

    @property
    def num_tokens(self) -> int:
        return self.num_prompt_tokens + self.num_output_tokens


@dataclass(frozen=True, slots=True)
class Weights:
    """The weighted tokens of one token of each sort, in thousandths. `is_price`: they are the price
    of a million tokens, too, so a weighted token costs a millionth of the currency."""

    uncached_milli: int = 1000
    cached_milli: int = 1000
    output_milli: int = 1000
    image_milli: int = 1000
    is_price: bool = False

    def cost_milli(self, counts: TokenCounts) -> int:
        """Return the cost of a request, in thousandths of a millionth; 0 without a price."""
        return self.weigh_milli(counts) if self.is_price else 0

    def weigh_milli(self, counts: TokenCounts) -> int:
        """Return the weighted tokens of a request, in thousandths. No token may be both cached and
        an image token; the tokens of videos count as those of images."""
        num_cached, num_image = counts.num_cached_tokens, counts.num_image_tokens
        return (
            (counts.num_prompt_tokens - num_cached - num_image) * self.uncached_milli
            + num_cached * self.cached_milli
            + num_image * self.image_milli
            + counts.num_output_tokens * self.output_milli
        )


EQUAL_WEIGHTS: Final = Weights()


def weights_by_model(rows: Iterable[Any], *, are_prices: bool) -> dict[str, Weights]:
    """Return the weights of rows of `ModelWeight` by model; others have `EQUAL_WEIGHTS`."""
    weights = {}
    for row in rows:
        try:
            uncached, cached = _milli(row.uncached), _milli(row.cached)
            output, image = _milli(row.output), _milli(row.image)
            weights[row.model] = Weights(uncached, cached, output, image, are_prices)
        except (ValueError, OverflowError) as error:  # the weight is infinite or no number
            logger.error("ignoring the token weights of %s: %s", ascii(row.model), error)
    return weights


def _milli(weight: float) -> int:
    return min(max(0, round(weight * 1000)), MAX_WEIGHT * 1000)


# request_id, then the counts so far that `_PROGRESS` names.
Progress = tuple[str, int, int, int, int]
_PROGRESS = ("num_prompt_tokens", "num_cached_tokens", "num_output_tokens", "num_reasoning_tokens")


class Media(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The pictures, videos and files of a request, decoded."""

    num_files: int
    num_bytes: int
    num_pixels: int  # as the model sees them
    # Of each file's tokens in the prompt: the index of the first, and the index after the last.
    spans: tuple[tuple[int, int], ...]
    num_video_tokens: int = 0  # of these tokens
    fetch_ms: float | None = None
    decode_ms: float | None = None

    @property
    def num_tokens(self) -> int:
        return sum(end - start for start, end in self.spans)

    def num_new_tokens(self, num_cached: int) -> int:
        """Return the number of tokens outside the cached start of the prompt."""
        return sum(max(0, end - max(start, num_cached)) for start, end in self.spans)


class Admission(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="admission"):
    """A request was admitted. `request_id` is unique; ids are None for anonymous callers."""

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
    asked_model: str = ""  # the model name in the request
    client_request_id: str = ""
    num_request_bytes: int = 0
    end_user: str = ""  # of the client, cut or hashed
    mm_hashes: str = ""  # as the client sent them, between blanks
    parameters: str | None = None  # that the client sent: a JSON object without texts
    # Known before an engine gets the request, and not part of the settlement.
    media: Media | None = None

    def __post_init__(self) -> None:
        if self.started_at.tzinfo is None:
            raise ValueError("started_at needs a time zone")


class Checkpoint(msgspec.Struct, frozen=True, tag="checkpoint"):
    """The usage of the running requests so far."""

    progress: tuple[Progress, ...]


class BoundLimit(msgspec.Struct, frozen=True):
    """A limit that refused a request, or would have in shadow."""

    limit_id: int
    scope: str  # such as "key:12"
    metric: str
    window: str
    amount: int
    level: float  # used, in units of the metric
    needed: float
    wait_s: float | None  # None: the request would never fit
    is_shadow: bool = False


class Settlement(TokenCounts, frozen=True, kw_only=True, omit_defaults=True, tag="settlement"):
    """A request has ended. With its admission this is the whole usage record."""

    admission: Admission
    outcome: Outcome
    http_status: int | None
    queue_ms: float | None = None
    first_token_ms: float | None = None
    total_ms: float | None = None
    error_code: str = ""
    error_message: str = ""  # without texts of the client
    error_param: str = ""  # the path of the field
    finish_reason: str = ""
    inter_token_ms: float | None = None
    prefill_ms: float | None = None
    num_response_bytes: int = 0
    num_continuations: int = 0  # by another engine, after the end of an engine
    num_media: int = 0  # pictures, videos and files
    num_media_bytes: int = 0
    num_media_pixels: int = 0  # that the model saw
    fetch_ms: float | None = None
    decode_ms: float | None = None
    encode_ms: float | None = None
    # None: not weighted yet; the weights at the time of storing count.
    weighted_tokens: float | None = None
    cost: float = 0.0  # in millionths of the currency
    is_exact: bool = True  # False: from the last checkpoint of a dead process
    bound_limits: tuple[BoundLimit, ...] = ()


Entry = Admission | Checkpoint | Settlement

_ENCODER = msgspec.json.Encoder()
_DECODER: msgspec.json.Decoder[Entry] = msgspec.json.Decoder(Entry)


def encode(entry: Entry) -> bytes:
    """Return one line with its newline. JSON contains no raw newline, so a line is an entry."""
    try:
        return _ENCODER.encode(entry) + b"\n"
    except UnicodeEncodeError:
        # Half a surrogate pair has no UTF-8. Request bodies with one are refused, but a record
        # must not be lost if some text has one all the same.
        text = json.dumps(msgspec.to_builtins(entry), ensure_ascii=False)
        return text.encode("utf-8", "replace") + b"\n"


def decode(line: bytes) -> Entry | None:
    """Return the entry of a line without its newline, or None if the line is no entry."""
    try:
        return _DECODER.decode(line)
    except msgspec.MsgspecError:
        return None


def entries_in(lines: bytes) -> Iterator[Entry]:
    """Yield the entries of whole lines. A damaged line is logged and skipped."""
    for line in lines.splitlines():
        entry = decode(line)
        if entry is None:
            logger.error("skipped a damaged line of %d bytes in a usage journal", len(line))
        else:
            yield entry


class OpenRequests:
    """Requests that are admitted and not settled, with their last checkpoint."""

    def __init__(self) -> None:
        self._admissions: dict[str, Admission] = {}
        self._progress: dict[str, Progress] = {}

    def take(self, entry: Entry) -> None:
        """Apply one entry. Repeated entries and checkpoints of unknown requests change nothing. The
        last admission counts: the serving model may be known only after the first."""
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

    def __len__(self) -> int:
        return len(self._admissions)

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._admissions

    def entries(self) -> Iterator[Entry]:
        """Yield the entries with which a new journal begins in the same state."""
        yield from self._admissions.values()
        if self._progress:
            yield Checkpoint(tuple(self._progress.values()))

    def interrupted(self, engine_counts: Mapping[str, Progress]) -> Iterator[Settlement]:
        """Yield settlements of the open requests of a dead process. `engine_counts` are the exact
        counts of engines that survived it, by request id; for others the last checkpoint counts."""
        for request_id, admission in self._admissions.items():
            none = (request_id, 0, 0, 0, 0)
            checkpoint = self._progress.get(request_id, none)
            counted = engine_counts.get(request_id, none)
            counts = [max(pair) for pair in zip(checkpoint[1:], counted[1:], strict=True)]
            if request_id in engine_counts:
                # The checkpoint may include output of an earlier engine that died. The request
                # was then repeated, and the client does not pay for the first attempt.
                counts[2] = counted[3]
                counts[3] = min(checkpoint[4], counted[3])
            so_far: dict[str, Any] = dict(zip(_PROGRESS, counts, strict=True))
            settlement = Settlement(
                admission=admission,
                outcome=Outcome.INTERRUPTED,
                http_status=None,
                is_exact=request_id in engine_counts,
                **so_far,
            )
            yield _with_media(settlement, admission.media)


def _with_media(settlement: Settlement, media: Media | None) -> Settlement:
    """Tokens of media count only after an engine has accepted the request."""
    if media is None:
        return settlement
    num_tokens = media.num_tokens - media.num_video_tokens
    return msgspec.structs.replace(
        settlement,
        num_image_tokens=num_tokens if settlement.num_prompt_tokens else 0,
        num_video_tokens=media.num_video_tokens if settlement.num_prompt_tokens else 0,
        num_media=media.num_files,
        num_media_bytes=media.num_bytes,
        num_media_pixels=media.num_pixels,
        fetch_ms=media.fetch_ms,
        decode_ms=media.decode_ms,
    )
