"""Qwen2-VL, Qwen2.5-VL and Qwen3-VL: pictures of any size, in squares of merged patches.

The size rule is `smart_resize` of these models, with the numbers that OpenVINO GenAI reads from the
folder. A size whose sides are multiples of the square and whose area is within the model's limits
is one that `smart_resize` keeps.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Self

from vinery_serving.core.media import LOW_DETAIL_PIXELS, Detail
from vinery_serving.prompting.folder import UnusableFolder
from vinery_serving.prompting.picture_markup import Markup
from vinery_serving.prompting.vision import Grid

_START: Final = "<|vision_start|>"
_END: Final = "<|vision_end|>"
_IMAGE: Final = "<|image_pad|>"
_VIDEO: Final = "<|video_pad|>"
_RESERVED: Final = (_START, _IMAGE, _VIDEO)
_IMAGES_ONLY: Final = Markup(f"{_START}{_IMAGE}{_END}", None, _IMAGE, None, _RESERVED)
_WITH_VIDEO: Final = Markup(
    f"{_START}{_IMAGE}{_END}", f"{_START}{_VIDEO}{_END}", _IMAGE, _VIDEO, _RESERVED
)
# GenAI's values where the folder has none.
_MIN_PIXELS: Final = 56 * 56
_MAX_PIXELS: Final = 14 * 14 * 4 * 1280
# GenAI joins frames in pairs, and refuses a picture that is longer than this.
_FRAMES_OF_PATCH: Final = 2
_MAX_ASPECT: Final = 200


@dataclass(frozen=True, slots=True)
class QwenProcessor:
    """`side` is the side of a merged square in pixels; one square is one token."""

    side: int
    min_squares: int
    max_squares: int
    takes_video: bool

    @classmethod
    def of(cls, image: Mapping[str, Any], video: Mapping[str, Any], *, takes_video: bool) -> Self:
        """Raises `UnusableFolder`. `video` are the values for videos, if the folder has them."""
        side = _number(image, "patch_size", 14) * _number(image, "merge_size", 2)
        if _number(image, "temporal_patch_size", _FRAMES_OF_PATCH) != _FRAMES_OF_PATCH:
            raise UnusableFolder("The model's temporal_patch_size must be 2: GenAI takes no other.")
        limits = [_limits(image)]
        if takes_video and video:
            limits.append(_limits(video))
        area = side * side
        least = max(-(-low // area) for low, _ in limits)
        most = min(high // area for _, high in limits)
        if not 1 <= least <= most:
            raise UnusableFolder(
                f"The model's min_pixels and max_pixels leave no size of {side} pixel squares."
            )
        return cls(side, least, most, takes_video)

    @property
    def markup(self) -> Markup:
        return _WITH_VIDEO if self.takes_video else _IMAGES_ONLY

    def within(self, max_pixels: int) -> Self:
        if not max_pixels:
            return self
        most = min(self.max_squares, max_pixels // (self.side * self.side))
        return replace(self, max_squares=max(self.min_squares, most))

    def fit(self, width: int, height: int, detail: Detail, max_pixels: int) -> tuple[int, int]:
        if detail is Detail.LOW:
            max_pixels = min(max_pixels, LOW_DETAIL_PIXELS)
        most = min(self.max_squares, max_pixels // (self.side * self.side))
        columns, rows = self._squares(width, height, max(self.min_squares, most))
        return columns * self.side, rows * self.side

    def grid(self, width: int, height: int, num_frames: int = 0) -> Grid:
        depth = max(1, -(-num_frames // _FRAMES_OF_PATCH))
        return depth, height // self.side, width // self.side

    def num_tokens(self, width: int, height: int, num_frames: int = 0) -> int:
        depth, rows, columns = self.grid(width, height, num_frames)
        return depth * rows * columns

    def _squares(self, width: int, height: int, most: int) -> tuple[int, int]:
        """Return columns and rows: those of `smart_resize`, where it keeps to the limits."""
        area, num_pixels = self.side * self.side, width * height
        columns, rows = (max(1, round(each / self.side)) for each in (width, height))
        if columns * rows > most:
            scale = math.sqrt(num_pixels / (most * area)) * self.side
            columns, rows = (max(1, math.floor(each / scale)) for each in (width, height))
        elif columns * rows < self.min_squares:
            scale = math.sqrt(self.min_squares * area / num_pixels) / self.side
            columns, rows = (math.ceil(each * scale) for each in (width, height))
        is_within = self.min_squares <= columns * rows <= most
        if is_within and max(columns, rows) <= _MAX_ASPECT * min(columns, rows):
            return columns, rows
        return self._nearest(width / height, most)

    def _nearest(self, aspect: float, most: int) -> tuple[int, int]:
        """Return the allowed numbers of squares that distort the picture least."""

        def distortion(size: tuple[int, int]) -> float:
            return abs(math.log(size[0] / size[1] / aspect))

        sizes: list[tuple[int, int]] = []
        for rows in range(1, most + 1):
            least, limit = -(-self.min_squares // rows), most // rows
            least = max(least, -(-rows // _MAX_ASPECT))
            limit = min(limit, rows * _MAX_ASPECT)
            if least <= limit:
                sizes.append((min(max(round(rows * aspect), least), limit), rows))
        return min(sizes, key=distortion)


def _limits(values: Mapping[str, Any]) -> tuple[int, int]:
    """The least and most pixels, by either of the names that these models have had."""
    if values.get("min_pixels") is None and values.get("max_pixels") is None:
        size = values.get("size")
        size = size if isinstance(size, dict) else {}
        return (
            _number(size, "shortest_edge", _MIN_PIXELS),
            _number(size, "longest_edge", _MAX_PIXELS),
        )
    return _number(values, "min_pixels", _MIN_PIXELS), _number(values, "max_pixels", _MAX_PIXELS)


def _number(values: Mapping[str, Any], key: str, default: int) -> int:
    value = values.get(key)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise UnusableFolder(f"The model's {key} must be a positive number, not {value!r}.")
    return value
