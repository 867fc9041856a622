"""Searches a hub for models by words."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import huggingface_hub

from vinery_serving.models.hub.client import Hub
from vinery_serving.models.hub.errors import PullFailed
from vinery_serving.models.hub.explaining import explained

MAX_FOUND: Final = 30
_OPENVINO: Final = "openvino"  # the tag of models in OpenVINO's format


@dataclass(frozen=True, slots=True)
class Found:
    """A repository that matches."""

    name: str
    downloads: int  # in the last month
    tag: str  # the hub's name of the task; empty: unknown
    is_openvino: bool  # whether the hub lists it as one in OpenVINO's format


def search(hub: Hub, text: str, *, only_openvino: bool = True) -> list[Found]:
    """Return the most downloaded repositories that match. Raises `PullFailed`, and
    `HubUnavailable` if the hub does not answer."""
    api = huggingface_hub.HfApi(endpoint=hub.endpoint)
    with explained(hub.endpoint, text, "main"):
        listed = api.list_models(
            search=text,
            filter=_OPENVINO if only_openvino else None,
            sort="downloads",
            limit=MAX_FOUND,
        )
        try:
            return list(_found(listed))
        except (AttributeError, KeyError, TypeError, ValueError):
            raise PullFailed("The hub answers with what is no list of models.") from None


def _found(listed: Any) -> Iterator[Found]:
    for info in listed:
        yield Found(
            name=str(info.id),
            downloads=int(info.downloads or 0),
            tag=str(info.pipeline_tag or ""),
            is_openvino=_OPENVINO in (info.tags or ()),
        )
