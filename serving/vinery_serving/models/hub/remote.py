"""Files at `https://`, `http://` and `s3://`: size, ETag, and bytes from any position on.

Only administrators name these URLs; `web` checks where they and their redirects lead. Credentials
of a store that speaks S3 are those of AWS's variables and files, so none is in a URL, a job or a
log.
"""

import errno
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import urlsplit, urlunsplit

import huggingface_hub

from vinery_serving.models.hub.client import stream_of
from vinery_serving.models.hub.errors import HubUnavailable, PullFailed, explained
from vinery_serving.models.hub.pull import Stream

_TIMEOUT_S: Final = 20.0


class RemoteFile(NamedTuple):
    size_bytes: int
    etag: str  # of this content; empty: the server has none


def remote_of(url: str, *, is_checked: bool, etag: str = "") -> "WebFile | S3File":
    """Return the file at a URL. `is_checked`: the digest is known, so that HTTP without TLS will
    do. `etag` is the content of an earlier attempt: HTTP continues no other content, and S3 reads
    no other. Raises `PullFailed` for another URL."""
    try:
        parts = urlsplit(url)
    except ValueError:  # brackets that are not closed
        raise PullFailed("Write a URL that begins with https:// or s3://.") from None
    if parts.username or parts.password:
        raise PullFailed("Leave the password out of the URL: it would be shown with the job.")
    if parts.scheme == "s3" and parts.hostname and parts.path.strip("/"):
        if parts.query or parts.fragment:
            raise PullFailed("Leave ? and # out of an s3:// URL: the newest version is pulled.")
        return S3File(url, etag)
    if parts.scheme == "http" and not is_checked:
        raise PullFailed("A file that comes by http:// needs its SHA-256. Or use https://.")
    if parts.scheme not in ("https", "http") or not parts.hostname:
        raise PullFailed(f"Write a URL that begins with https:// or s3://, not {shown(url)!r}.")
    return WebFile(url, etag)


def shown(url: str) -> str:
    """Return a URL without a password and without its query, which may be a signature."""
    parts = urlsplit(url)
    netloc = parts.netloc.rpartition("@")[2]
    return urlunsplit(parts._replace(netloc=netloc, query="", fragment=""))


@dataclass(frozen=True, slots=True)
class WebFile:
    """`etag` is that of the content that an earlier attempt began; empty: unknown."""

    url: str
    etag: str = ""

    def look(self) -> RemoteFile:
        """Ask for the first byte: not all servers, and no signed URLs, answer HEAD."""
        with self._get({"Range": "bytes=0-0"}, _TIMEOUT_S) as response:
            huggingface_hub.utils.hf_raise_for_status(response)
            whole = response.headers.get("content-range", "").rpartition("/")[2]
            size = whole if response.status_code == 206 else response.headers.get("content-length")
            etag = response.headers.get("etag", "")
        if not size or not size.isdecimal():
            raise PullFailed(f"The server of {shown(self.url)} does not name the file's size.")
        return RemoteFile(int(size), etag)

    @contextmanager
    def open(self, start: int, stall_s: float) -> Iterator[Stream]:
        headers = {"Range": f"bytes={start}-"} if start else {}
        # A server with another content sends all of it, RFC 9110 13.1.5. Weak tags are not
        # compared.
        if start and self.etag and not self.etag.startswith("W/"):
            headers["If-Range"] = self.etag
        with self._get(headers, stall_s) as response:
            yield stream_of(response, start, shown(self.url))

    @contextmanager
    def _get(self, headers: dict[str, str], timeout_s: float) -> Iterator[Any]:
        from vinery_serving.models.hub.web import opened  # the clients of HTTP are large

        parts = urlsplit(self.url)
        with (
            explained(f"{parts.scheme}://{parts.netloc}", shown(self.url), ""),
            opened(self.url, headers, timeout_s) as response,
        ):
            yield response


# -- Objects of a store that speaks S3, with the client of `vinery-platform[s3]`

_T = TypeVar("_T")
# The bytes of one read, which a cut connection repeats.
_BLOCK_BYTES: Final = 16 << 20
# Errors of `s3fs` for the answers 500, 503 and SlowDown, and for a changed object.
_PASSING: Final = (errno.EBUSY, errno.EREMOTEIO, errno.ETIMEDOUT, errno.ECONNRESET)


@dataclass(frozen=True, slots=True)
class S3File:
    """An object. `etag` is that of the wanted content; empty: any."""

    url: str
    etag: str = ""

    def look(self) -> RemoteFile:
        info = self._explained(lambda: _client(_TIMEOUT_S).info(self.url))
        if info["type"] != "file":
            raise PullFailed(f"{self.url} is a folder of the store. Name an archive in it.")
        return RemoteFile(int(info["size"]), _etag_of(info))

    @contextmanager
    def open(self, start: int, stall_s: float) -> Iterator[Stream]:
        file = self._explained(lambda: self._open(start, stall_s))
        read = partial(self._explained, partial(file.read, _BLOCK_BYTES))
        try:
            yield Stream(start, iter(read, b""))
        finally:
            file.close()

    def _open(self, start: int, stall_s: float) -> Any:
        file = _client(stall_s).open(self.url, "rb", cache_type="none")
        if self.etag and _etag_of(file.details) != self.etag:
            raise PullFailed(f"{self.url} has changed since its pull began. Pull it again.")
        file.seek(start)
        return file

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
            raise _store_refused(error, self.url) from None


def _client(timeout_s: float) -> Any:
    """Return a client without cached lists and without retries: a transfer retries."""
    import s3fs

    for library in ("aiobotocore", "botocore"):  # these log where credentials are
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


def _store_refused(error: Exception, url: str) -> PullFailed:
    """Return the error of a store as a sentence. Messages of the libraries name variables, files,
    buckets and endpoints, and no secrets."""
    from aiohttp import ClientError
    from botocore import exceptions as aws

    passing = (ClientError, TimeoutError, aws.HTTPClientError, aws.ConnectionError)
    may_pass = isinstance(error, passing) or getattr(error, "errno", None) in _PASSING
    if may_pass and not isinstance(error, aws.SSLError):
        return HubUnavailable(
            f"The store of {url} cannot be reached, or ended the connection. Check the network, "
            "AWS_ENDPOINT_URL and AWS_REGION."
        )
    if isinstance(error, aws.BotoCoreError | ValueError | OSError):
        return PullFailed(
            f"{url} cannot be read: {' '.join(str(error).split())}. Check the bucket, the path, "
            "and the variables AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY."
        )
    raise error
