"""Errors of hubs and pulls, as sentences for administrators that name what to do."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from vinery_serving.models.jobs import JobFailed

if TYPE_CHECKING:
    from huggingface_hub.errors import HfHubHTTPError


class PullFailed(JobFailed):
    """Another attempt would fail, too. The message names what to change."""


class HubUnavailable(PullFailed):
    """The hub does not answer, or cannot answer now. Another attempt may work after
    `retry_after_s`, the seconds that the hub names; 0: none."""

    def __init__(self, message: str, retry_after_s: float = 0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


@contextmanager
def explained(endpoint: str, name: str, revision: str) -> Iterator[None]:
    """Turns these errors into `PullFailed`, or `HubUnavailable` for errors that may pass. No
    message has a token, or a URL with one."""
    import httpx2  # 0.1 s of each command
    from huggingface_hub import errors as hub_errors

    host = urlsplit(endpoint).netloc.rpartition("@")[2]
    try:
        yield
    except hub_errors.HfHubHTTPError as error:
        raise _refused(error, endpoint, name, revision) from None
    except hub_errors.OfflineModeIsEnabled:
        raise PullFailed(
            "HF_HUB_OFFLINE is set, so no hub is asked. Unset it, or add a folder."
        ) from None
    except httpx2.TimeoutException:
        raise HubUnavailable(f"{host} did not answer in time.") from None
    except httpx2.HTTPError:
        raise HubUnavailable(
            f"{host} cannot be reached, or ended the connection. Check the network, HTTPS_PROXY "
            "and HF_ENDPOINT."
        ) from None


def _refused(error: "HfHubHTTPError", endpoint: str, name: str, revision: str) -> PullFailed:
    from huggingface_hub import errors as hub_errors

    host, status = urlsplit(endpoint).netloc.rpartition("@")[2], error.response.status_code
    if isinstance(error, hub_errors.GatedRepoError):
        return PullFailed(
            f"{name} is gated. Accept its conditions at {endpoint}/{name}, and set HF_TOKEN to a "
            "token of that account."
        )
    if isinstance(error, hub_errors.RevisionNotFoundError):
        return PullFailed(
            f"{name} has no revision {revision}. Name a branch, a tag or a commit of it."
        )
    if isinstance(error, hub_errors.RepositoryNotFoundError) or status in (401, 403):
        return PullFailed(
            f"{host} has no repository {name} that may be read. Check the name; a private one "
            "needs HF_TOKEN, of one who may read it."
        )
    if status == 429:
        after = error.response.headers.get("retry-after", "")
        return HubUnavailable(
            f"{host} limits requests now. Try again in a few minutes, or set HF_TOKEN: requests "
            "with a token have higher limits.",
            float(after) if after.isascii() and after.isdigit() else 0,
        )
    if status >= 500 or status == 408:
        return HubUnavailable(f"{host} answers {status}. Try again later.")
    return PullFailed(f"{host} answers {status} for {name}.")
