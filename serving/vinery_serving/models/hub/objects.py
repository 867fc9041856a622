"""Objects of a store that speaks S3, with the client of `vinery-platform[s3]`.

Credentials, region and endpoint are those of AWS's variables and files, so none is in a URL, a job
or a log. Errors of the client's three libraries become sentences here.
"""

import errno
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Final, TypeVar

from vinery_serving.models.hub.errors import HubUnavailable, PullFailed
from vinery_serving.models.hub.transfer import RemoteFile, Stream

_T = TypeVar("_T")
_TIMEOUT_S: Final = 20.0
# Asked for at once, and fetched again if the connection is cut.
_BLOCK_BYTES: Final = 16 << 20
# What `s3fs` makes of the answers 500, 503 and SlowDown, and of an object that has changed.
_PASSING: Final = (errno.EBUSY, errno.EREMOTEIO, errno.ETIMEDOUT, errno.ECONNRESET)


@dataclass(frozen=True, slots=True)
class S3File:
    """An object. `etag` is that of the content that is wanted; empty: any."""

    url: str
    etag: str = ""

    def look(self) -> RemoteFile:
        """Raises `PullFailed`."""
        info = self._explained(lambda: _client(_TIMEOUT_S).info(self.url))
        if info["type"] != "file":
            raise PullFailed(f"{self.url} is a folder of the store. Name an archive in it.")
        return RemoteFile(PurePosixPath(self.url).name, int(info["size"]), _etag_of(info))

    @contextmanager
    def open(self, start: int, stall_s: float) -> Iterator[Stream]:
        """See `Source`."""
        file = self._explained(lambda: self._open(start, stall_s))
        try:
            yield Stream(start, self._blocks(file))
        finally:
            file.close()

    def _open(self, start: int, stall_s: float) -> Any:
        file = _client(stall_s).open(self.url, "rb", cache_type="none")
        if self.etag and _etag_of(file.details) != self.etag:
            raise PullFailed(f"{self.url} has changed since its pull began. Pull it again.")
        file.seek(start)
        return file

    def _blocks(self, file: Any) -> Iterator[bytes]:
        while block := self._explained(lambda: file.read(_BLOCK_BYTES)):
            yield block

    def _explained(self, ask: Callable[[], _T]) -> _T:
        """Raises `PullFailed`, or `HubUnavailable` for what may pass, instead of other errors."""
        try:
            return ask()
        except PullFailed:
            raise
        except ImportError:
            raise PullFailed(
                "s3:// needs another package: pip install 'vinery-platform[s3]'."
            ) from None
        except Exception as error:
            raise _refused(error, self.url) from None


def _client(timeout_s: float) -> Any:
    """Return a client that neither keeps lists of objects nor tries again: a transfer does."""
    import s3fs

    for library in ("aiobotocore", "botocore"):  # they log where they find credentials
        logging.getLogger(library).setLevel(logging.WARNING)
    client = s3fs.S3FileSystem(
        skip_instance_cache=True,
        use_listings_cache=False,
        config_kwargs={
            "connect_timeout": _TIMEOUT_S,
            "read_timeout": timeout_s,
            "retries": {"total_max_attempts": 1},
        },
    )
    client.retries = 1
    return client


def _etag_of(info: dict[str, Any]) -> str:
    return str(info.get("ETag") or "")


def _refused(error: Exception, url: str) -> PullFailed:
    """Return the error of a store as a sentence. Messages of the libraries name variables, files,
    buckets and endpoints, and no secrets."""
    from botocore import exceptions as aws

    if isinstance(error, FileNotFoundError):
        return PullFailed(
            f"There is no {url}. Check the bucket, the path, and AWS_ENDPOINT_URL for a store of "
            "your own."
        )
    if isinstance(error, PermissionError):
        return PullFailed(
            f"{url} may not be read with these credentials. Check AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY, and what they may read."
        )
    if isinstance(error, aws.NoCredentialsError | aws.CredentialRetrievalError):
        return PullFailed(
            f"There are no credentials for {url}. Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY "
            "for `vinery up` and this command, or AWS_PROFILE."
        )
    if _may_pass(error):
        return HubUnavailable(
            f"The store of {url} cannot be reached, or ended the connection. Check the network, "
            "AWS_ENDPOINT_URL and AWS_REGION."
        )
    if isinstance(error, aws.BotoCoreError | ValueError | OSError):
        return PullFailed(f"{url} cannot be read: {' '.join(str(error).split())}.")
    raise error


def _may_pass(error: Exception) -> bool:
    from aiohttp import ClientError
    from botocore import exceptions as aws

    if isinstance(error, aws.SSLError):
        return False
    passing = (ClientError, TimeoutError, aws.HTTPClientError, aws.ConnectionError)
    return isinstance(error, passing) or (isinstance(error, OSError) and error.errno in _PASSING)
