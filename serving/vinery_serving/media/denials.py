"""Why media of a request were refused by the rules, as the list of refusals shows it.

Never the path or the query of a URL, nor the name of a file: they may hold secrets.
"""

from dataclasses import dataclass
from enum import StrEnum

from vinery_serving.core.errors import InvalidRequest


class DenialReason(StrEnum):
    NO_RULE = "no_rule"  # no rule of a level allows the scheme, host and port, or the folder
    ADDRESS = "address"  # the host has an address that is not public
    CONTENT_TYPE = "content_type"
    MAX_BYTES = "max_bytes"
    MAX_PIXELS = "max_pixels"
    MAX_REDIRECTS = "max_redirects"
    TIMEOUT = "timeout"


@dataclass(frozen=True, slots=True)
class Denial:
    """One URL or path that was refused. Either `host` or `folder` is empty."""

    reason: DenialReason
    level: str  # of the policy that refused it: "platform", "organization" or "project"
    scheme: str = ""
    host: str = ""  # lower case, punycode
    port: int = 0
    folder: str = ""  # that holds the file
    rule_id: int | None = None  # the rule whose value refused it; None: there was no rule
    detail: str = ""  # the address, content type or number that was refused


class MediaDenied(
    InvalidRequest,
    code="media_denied",
    recorded_as="The media rules do not allow a URL or file of the request.",
):
    """The media rules do not allow a URL or file that the request names."""

    def __init__(self, message: str, denial: Denial, *, param: str | None = None) -> None:
        super().__init__(message, param=param)
        self.denial = denial


class MediaNotFetched(
    InvalidRequest,
    code="media_not_fetched",
    recorded_as="A URL or file of the request cannot be fetched or read.",
):
    """A URL or file that the request names cannot be fetched or read."""
