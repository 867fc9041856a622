"""Refuses media for models that take text only, before anything is fetched or decoded."""

from collections.abc import Iterable

from vinery_serving.core.errors import InvalidRequest
from vinery_serving.core.media import MediaPart
from vinery_serving.gateway.engines.directory import LoadedModel


def refuse_media(media: Iterable[MediaPart], model: LoadedModel) -> None:
    """Raises `InvalidRequest` for media if the model takes text only."""
    if model.assets.vision is not None:
        return
    for part in media:
        raise InvalidRequest(
            f"`{part.param}` holds {part.kind} input, but the model {model.entry.name} takes text "
            "only. Send text parts, or choose a model with vision.",
            param=part.param,
        )
