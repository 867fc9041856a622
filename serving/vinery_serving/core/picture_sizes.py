"""The sizes that a vision model's pictures are scaled to, and the tokens of these sizes.

The numbers follow from the model's files as OpenVINO GenAI reads them (measured, 2026.4.1). Each
`fit` gives a size that GenAI does not scale again, so gateway and engine count the same tokens.
Qwen's models are not here: see `prompting/vision`.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Self

from vinery_serving.core.media import LOW_DETAIL_PIXELS, Detail

# GenAI divides a picture of InternVL into at most this many tiles, also where the folder has more.
_MAX_TILES: Final = 12
Size = tuple[int, int]  # width and height, in pixels


def picture_sizes(
    model_type: str, config: Mapping[str, Any], processor: Mapping[str, Any]
) -> "PictureSizes | None":
    """Return the sizes of a model; None for a type that is not known here. `config` is config.json,
    `processor` is preprocessor_config.json. Raises ValueError if GenAI could not use them."""
    kind = _KINDS.get(model_type)
    return None if kind is None else kind.of(config, processor)


@dataclass(frozen=True, slots=True)
class SquareSize:
    """Gemma 3: every picture is scaled to one square, and has the same number of tokens."""

    side: int
    tokens: int

    @classmethod
    def of(cls, config: Mapping[str, Any], processor: Mapping[str, Any]) -> Self:
        size = _object(processor, "size")
        side = _number(size, "height")
        if _number(size, "width") != side:
            raise ValueError("The model's size in preprocessor_config.json must be a square.")
        return cls(side, _number(config, "mm_tokens_per_image", 256))

    def within(self, max_pixels: int) -> Self:
        """Return itself: the model has one size."""
        return self

    def fit(self, width: int, height: int, detail: Detail, max_pixels: int) -> Size:
        return self.side, self.side

    def num_tokens(self, width: int, height: int) -> int:
        _check(width == height == self.side)
        return self.tokens


@dataclass(frozen=True, slots=True)
class CroppedSize:
    """LLaVA 1.5: the shorter side is scaled to that of a square, and GenAI cuts out the middle."""

    side: int
    tokens: int

    @classmethod
    def of(cls, config: Mapping[str, Any], processor: Mapping[str, Any]) -> Self:
        side, patches = _tile(config, processor)
        keeps_class = config.get("vision_feature_select_strategy", "default") == "full"
        return cls(side, patches * patches + int(keeps_class))

    def within(self, max_pixels: int) -> Self:
        return self

    def fit(self, width: int, height: int, detail: Detail, max_pixels: int) -> Size:
        longest = max(self.side, max_pixels // self.side)
        scale = self.side / min(width, height)

        def scaled(length: int) -> int:
            return min(longest, max(self.side, int(length * scale)))

        return scaled(width), scaled(height)

    def num_tokens(self, width: int, height: int) -> int:
        _check(min(width, height) == self.side)
        return self.tokens


@dataclass(frozen=True, slots=True)
class TileSizes:
    """InternVL: a picture is scaled to a grid of square tiles. Beside several tiles the model sees
    the whole picture in an extra tile."""

    side: int
    tokens: int  # of a tile
    max_tiles: int

    @classmethod
    def of(cls, config: Mapping[str, Any], processor: Mapping[str, Any]) -> Self:
        vision = _object(config, "vision_config")
        side = _number(config, "force_image_size", _number(vision, "image_size", 448))
        scaled = _side_of(processor)
        if scaled != side:
            raise ValueError(
                f"The model's size in preprocessor_config.json is {scaled}, and its tiles have "
                f"{side} pixels."
            )
        patches = side // _number(vision, "patch_size", 14)
        tokens = int(patches * patches * float(config.get("downsample_ratio", 0.5)) ** 2)
        return cls(side, tokens, min(_number(config, "max_dynamic_patch", _MAX_TILES), _MAX_TILES))

    def within(self, max_pixels: int) -> Self:
        return replace(self, max_tiles=self._most(max_pixels)) if max_pixels else self

    def fit(self, width: int, height: int, detail: Detail, max_pixels: int) -> Size:
        most = self._most(_limit(detail, max_pixels))
        best, least = (1, 1), math.inf
        grids = [(x, y) for x in range(1, most + 1) for y in range(1, most // x + 1)]
        for columns, rows in sorted(grids, key=math.prod):
            difference = abs(width / height - columns / rows)
            is_large = width * height > 0.5 * self.side**2 * columns * rows
            if difference < least or (difference == least and is_large):
                best, least = (columns, rows), difference
        return best[0] * self.side, best[1] * self.side

    def num_tokens(self, width: int, height: int) -> int:
        columns, rows = width // self.side, height // self.side
        _check((columns * self.side, rows * self.side) == (width, height))
        num_tiles = columns * rows
        _check(1 <= num_tiles <= _MAX_TILES)
        return (num_tiles + int(num_tiles > 1)) * self.tokens

    def _most(self, max_pixels: int) -> int:
        return max(1, min(self.max_tiles, max_pixels // self.side**2))


@dataclass(frozen=True, slots=True)
class PinpointSizes:
    """LLaVA-NeXT (1.6): a picture is scaled into the best of some sizes and divided into tiles;
    another tile has the whole picture. Tokens outside of the picture are left out, and each row of
    tokens ends with an extra token."""

    side: int  # of a tile
    patches: int  # along a side of a tile
    resolutions: tuple[Size, ...]

    @classmethod
    def of(cls, config: Mapping[str, Any], processor: Mapping[str, Any]) -> Self:
        side, patches = _tile(config, processor)
        if config.get("vision_feature_select_strategy", "default") != "default":
            raise ValueError('The model\'s vision_feature_select_strategy must be "default".')
        if not config.get("image_newline"):  # GenAI would use memory that has no value
            raise ValueError("The model's config.json must have image_newline: export it again.")
        resolutions = _pairs(processor.get("image_grid_pinpoints"))
        if not resolutions or any(each % side for pair in resolutions for each in pair):
            raise ValueError(
                f"The model's image_grid_pinpoints must be sizes in tiles of {side} pixels."
            )
        return cls(side, patches, resolutions)

    def within(self, max_pixels: int) -> Self:
        return self if not max_pixels else replace(self, resolutions=self._at_most(max_pixels))

    def fit(self, width: int, height: int, detail: Detail, max_pixels: int) -> Size:
        resolution = self._best(width, height, self._at_most(_limit(detail, max_pixels)))
        while True:
            size = self._scaled(width, height, resolution)
            holding = self._holding(*size)
            if size[0] == holding[0] or size[1] == holding[1]:
                return size
            resolution = holding  # smaller

    def num_tokens(self, width: int, height: int) -> int:
        resolution = self._holding(width, height)
        _check(width == resolution[0] or height == resolution[1])
        columns, rows = map(self._num_shown, (width, height), resolution)
        return self.patches**2 + rows * (columns + 1)

    def _num_shown(self, length: int, most: int) -> int:
        """Return the patches along a side: the same number is left out at each end."""
        num_all = most // self.side * self.patches
        return num_all - 2 * ((num_all - length * self.patches // self.side) // 2)

    def _at_most(self, max_pixels: int) -> tuple[Size, ...]:
        small = tuple(each for each in self.resolutions if math.prod(each) <= max_pixels)
        return small or (min(self.resolutions, key=math.prod),)

    @staticmethod
    def _best(width: int, height: int, resolutions: Iterable[Size]) -> Size:
        """Return where the picture has most of its pixels, and among these the smallest."""

        def quality(resolution: Size) -> tuple[int, int]:
            scale = min(resolution[0] / width, resolution[1] / height)
            num_pixels = int(width * scale) * int(height * scale)
            return min(num_pixels, width * height), -math.prod(resolution)

        return max(resolutions, key=quality)

    def _scaled(self, width: int, height: int, resolution: Size) -> Size:
        scale = min(resolution[0] / width, resolution[1] / height)
        columns, rows = (
            self._clear(round(each * scale), most)
            for each, most in zip((width, height), resolution, strict=True)
        )
        # The picture fills one side.
        if resolution[0] * height <= resolution[1] * width:
            return resolution[0], rows
        return columns, resolution[1]

    def _clear(self, length: int, most: int) -> int:
        """Return a length that does not end between two patches: GenAI computes their number with
        32-bit floats, and might find one less."""
        length = max(length, -(-self.side // self.patches))
        if length < most and length * self.patches % self.side == 0:
            length += 1
        return min(length, most)

    def _holding(self, width: int, height: int) -> Size:
        """Return the resolution that GenAI chooses for a picture that need not be scaled down."""
        holding = [each for each in self.resolutions if each[0] >= width and each[1] >= height]
        _check(holding)
        return min(holding, key=math.prod)


# `within` returns sizes of at most so many pixels, or the least that the model takes, `fit` the
# width and height to scale an upright picture to, and `num_tokens` the tokens of a size that `fit`
# gave. It raises ValueError for any other size.
PictureSizes = SquareSize | CroppedSize | TileSizes | PinpointSizes
_KINDS: Final[Mapping[str, type[PictureSizes]]] = {
    "gemma3": SquareSize,
    "llava": CroppedSize,
    "llava_next": PinpointSizes,
    "internvl_chat": TileSizes,
}
SIZED_TYPES: Final = tuple(_KINDS)  # of models


def _limit(detail: Detail, max_pixels: int) -> int:
    return min(max_pixels, LOW_DETAIL_PIXELS) if detail is Detail.LOW else max_pixels


def _check(is_right: object) -> None:
    if not is_right:
        raise ValueError("The size of a picture is not one that the model takes.")


def _tile(config: Mapping[str, Any], processor: Mapping[str, Any]) -> tuple[int, int]:
    """Return the side of LLaVA's square in pixels and in patches."""
    side, crop = _side_of(processor), _object(processor, "crop_size")
    if {_number(crop, "height"), _number(crop, "width")} != {side}:
        raise ValueError(
            "The model's crop_size in preprocessor_config.json must be a square of its size."
        )
    return side, side // _number(_object(config, "vision_config"), "patch_size", 14)


def _side_of(processor: Mapping[str, Any]) -> int:
    """Return the shortest edge. GenAI reads no `size` that is a number."""
    return _number(_object(processor, "size"), "shortest_edge")


def _pairs(values: Any) -> tuple[Size, ...]:
    """Return the pairs of positive numbers of a list; none if it is something else."""
    pairs = values if isinstance(values, list) else []
    are_right = all(
        isinstance(pair, list) and len(pair) == 2 and all(_is_positive(each) for each in pair)
        for pair in pairs
    )
    return tuple((pair[0], pair[1]) for pair in pairs) if are_right else ()


def _object(values: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = values.get(key)
    return value if isinstance(value, dict) else {}


def _number(values: Mapping[str, Any], key: str, default: int | None = None) -> int:
    value = values.get(key, default)
    if not _is_positive(value):
        raise ValueError(f"The model's {key} must be a positive number, not {value!r}.")
    assert isinstance(value, int)
    return value


def _is_positive(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0
