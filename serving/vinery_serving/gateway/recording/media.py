"""The media that a request may have, under the rules of its caller, and the files that are fetched
for it."""

import time
from collections.abc import Callable, Mapping, Sequence

from vinery_accounts.keys.table import Caller
from vinery_serving.core.errors import InvalidRequest
from vinery_serving.core.media import InlineSource, MediaPart, MediaUsage, PathSource, UrlSource
from vinery_serving.gateway.engines.meter import Meter
from vinery_serving.gateway.state.runtime import Runtime
from vinery_serving.media.fetching import Wanted
from vinery_serving.media.rules import MediaDenied, MediaPolicy


class CallerMedia:
    """The media of one request."""

    def __init__(
        self, runtime: Runtime, caller: Caller, meter: Meter, cover: Callable[[int], None]
    ) -> None:
        """`cover` claims memory for so many bytes, or raises `ServingError`."""
        self._runtime = runtime
        self._caller = caller
        self._meter = meter
        self._cover = cover

    async def fetch(self, media: Sequence[MediaPart]) -> Mapping[int, InlineSource]:
        """Return the files that did not come with the request, by the index of their part. Raises
        `ServingError`."""
        policy = self._runtime.media_policies.policy_of(
            self._caller.organization_id, self._caller.project_id
        )
        _check_number(media, policy)
        wanted = {
            index: Wanted(part.source, part.param)
            for index, part in enumerate(media)
            if isinstance(part.source, UrlSource | PathSource)
        }
        return await self._fetch(wanted, policy) if wanted else {}

    async def _fetch(
        self, wanted: Mapping[int, Wanted], policy: MediaPolicy
    ) -> Mapping[int, InlineSource]:
        caller, begun_at_s = self._caller, time.monotonic()
        try:
            fetched = await self._runtime.media.fetch_all(
                tuple(wanted.values()), policy, key=caller.key_id, project=caller.project_id
            )
        except MediaDenied as denied:
            self._runtime.media_denials.put(
                denied.denial, caller.organization_id, caller.project_id
            )
            raise
        finally:
            fetch_s = time.monotonic() - begun_at_s
            self._meter.media += MediaUsage(fetch_s=fetch_s)
        self._cover(sum(len(each.data) for each in fetched))
        files = (InlineSource(each.data, each.max_pixels) for each in fetched)
        return dict(zip(wanted, files, strict=True))


def _check_number(media: Sequence[MediaPart], policy: MediaPolicy) -> None:
    most = policy.max_media
    if most is not None and len(media) > most:
        raise InvalidRequest(
            f"`{media[most].param}` is one too many: the media rules allow {most} pictures, videos "
            "and files in a request. Send fewer, or ask the administrator to allow more.",
            param=media[most].param,
        )
