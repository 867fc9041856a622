"""The files of a request that do not come with it. Without media rules none is allowed."""

from collections.abc import Mapping, Sequence

from vinery_serving.core.errors import InvalidRequest
from vinery_serving.core.media import InlineSource, MediaPart


async def fetch_media(media: Sequence[MediaPart]) -> Mapping[int, InlineSource]:
    """Return the files that did not come with the request, by the index of their part. Raises
    `InvalidRequest`."""
    for part in media:
        if not isinstance(part.source, InlineSource):
            raise InvalidRequest(
                f"`{part.param}` names a file that no media rule of this server allows. Send the "
                "file in a data URL.",
                param=part.param,
            )
    return {}
