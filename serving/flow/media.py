"""The pictures, videos and documents of a request, as its model takes them."""

from collections.abc import Iterable

from vinery_serving.core.errors import InvalidRequest
from vinery_serving.core.media import MediaPart


def refuse_media(media: Iterable[MediaPart], model: str) -> None:
    """Raises `InvalidRequest` for media that the model does not take."""
    for part in media:
        raise InvalidRequest(
            f"`{part.param}` holds {part.kind} input, but the model {model} takes text "
            "only. Send text parts.",
            param=part.param,
        )
