"""Decodes frames of a video or of an animated picture."""

from vinery_serving.core.media import Clip, MediaKind
from vinery_serving.media.decoding.animations import read_animation
from vinery_serving.media.decoding.file_types import check_type
from vinery_serving.media.decoding.limits import DecodeLimits, Fit
from vinery_serving.media.decoding.structure import check_structure
from vinery_serving.media.decoding.videos import read_video


def read_clip(data: bytes, limits: DecodeLimits, fit: Fit) -> Clip:
    """Raises `Unreadable`, and what `fit` raises."""
    file_type = check_type(data, MediaKind.VIDEO, limits.max_bytes)
    check_structure(data, file_type.name)
    read = read_video if file_type.kind is MediaKind.VIDEO else read_animation
    return read(data, file_type, limits, fit)
