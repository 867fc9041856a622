"""Vision models: the tokens of pictures, and their markup in prompts.

The numbers follow from the folder's files as OpenVINO GenAI reads them, so a prompt's tokens are
known before the engine has seen a picture. Pictures are scaled to a size that GenAI keeps.

Qwen2-VL, Qwen2.5-VL and Qwen3-VL take pictures of any size, in squares of merged patches, by the
rule `smart_resize`: it keeps a size if the sides are multiples of the square and the area is within
the model's limits. The sizes of other models follow from the folder alone.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Self

from vinery_serving.core.media import LOW_DETAIL_PIXELS, Clip, Detail, MediaKind, Picture
from vinery_serving.core.picture_sizes import SIZED_TYPES, PictureSizes, picture_sizes
from vinery_serving.prompting.folder import ModelFolder, UnusableFolder, read_object
from vinery_serving.prompting.tokenizer import Tokenizer

Grid = tuple[int, int, int]  # tokens: frames or pairs of frames, rows, columns


@dataclass(frozen=True, slots=True)
class Markup:
    """The texts by which prompts of a model family show pictures."""

    image: str  # a picture in a rendered prompt
    image_token: str  # in `encoded_image`, the token that is repeated for each part of the picture
    # Tokens that the engine takes for pictures wherever they are. No text may have them.
    reserved: tuple[str, ...]
    video: str | None = None  # a video; None: the model takes none
    video_token: str | None = None
    # The text that replaces `image` before a prompt is encoded; None: `image` stays.
    replacement: str | None = None

    @property
    def encoded_image(self) -> str:
        """A picture in the text that is encoded."""
        return self.replacement or self.image


@dataclass(frozen=True, slots=True)
class PromptMedia:
    start: int  # index of the first of its tokens, which follow each other
    grid: Grid
    source: Picture | Clip

    @property
    def num_tokens(self) -> int:
        return self.grid[0] * self.grid[1] * self.grid[2]

    @property
    def span(self) -> tuple[int, int]:
        """The index of the first token, and of the token after the last."""
        return self.start, self.start + self.num_tokens


_TEXT_EMBEDDINGS: Final = "openvino_text_embeddings_model.xml"
# Whether GenAI's video tokens are known beforehand: Qwen3-VL writes times between the frames.
_QWEN: Final = {"qwen2_vl": True, "qwen2_5_vl": True, "qwen3_vl": False}
_START, _END = "<|vision_start|>", "<|vision_end|>"
_IMAGE, _VIDEO = "<|image_pad|>", "<|video_pad|>"
_IMAGES_ONLY: Final = Markup(f"{_START}{_IMAGE}{_END}", _IMAGE, (_START, _IMAGE, _VIDEO))
_WITH_VIDEO: Final = replace(_IMAGES_ONLY, video=f"{_START}{_VIDEO}{_END}", video_token=_VIDEO)
# GenAI's values where the folder has none.
_MIN_PIXELS: Final = 56 * 56
_MAX_PIXELS: Final = 14 * 14 * 4 * 1280
# GenAI joins frames in pairs, and refuses a picture that is longer than this.
_FRAMES_OF_PATCH: Final = 2
_MAX_ASPECT: Final = 200
# A prompt shows a picture as the processors of these families do.
_LLAVA: Final = Markup("<image>", "<image>", ("<image>",))
_MARKUPS: Final[Mapping[str, Markup]] = {
    # The line breaks are part of a picture, and may be one token with line breaks of the text.
    "gemma3": Markup(
        "<start_of_image>",
        "<image_soft_token>",
        ("<start_of_image>", "<image_soft_token>", "<end_of_image>"),
        replacement="\n\n<start_of_image><image_soft_token><end_of_image>\n\n",
    ),
    "llava": _LLAVA,
    "llava_next": _LLAVA,
    "internvl_chat": Markup(
        "<img><IMG_CONTEXT></img>", "<IMG_CONTEXT>", ("<img>", "<IMG_CONTEXT>", "</img>")
    ),
}


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
        side = _positive(image, "patch_size", 14) * _positive(image, "merge_size", 2)
        if _positive(image, "temporal_patch_size", _FRAMES_OF_PATCH) != _FRAMES_OF_PATCH:
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
        return max(1, -(-num_frames // _FRAMES_OF_PATCH)), height // self.side, width // self.side

    def num_tokens(self, width: int, height: int, num_frames: int = 0) -> int:
        depth, rows, columns = self.grid(width, height, num_frames)
        return depth * rows * columns

    def _squares(self, width: int, height: int, most: int) -> tuple[int, int]:
        """Return columns and rows, as `smart_resize` does within the limits."""
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
            _positive(size, "shortest_edge", _MIN_PIXELS),
            _positive(size, "longest_edge", _MAX_PIXELS),
        )
    return _positive(values, "min_pixels", _MIN_PIXELS), _positive(
        values, "max_pixels", _MAX_PIXELS
    )


def _positive(values: Mapping[str, Any], key: str, default: int) -> int:
    value = values.get(key)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise UnusableFolder(f"The model's {key} must be a positive number, not {value!r}.")
    return value


@dataclass(frozen=True, slots=True)
class SizedProcessor:
    """The processor of a model that takes pictures, and no videos."""

    sizes: PictureSizes
    markup: Markup

    takes_video = False

    def within(self, max_pixels: int) -> Self:
        return replace(self, sizes=self.sizes.within(max_pixels)) if max_pixels else self

    def fit(self, width: int, height: int, detail: Detail, max_pixels: int) -> tuple[int, int]:
        return self.sizes.fit(width, height, detail, max_pixels)

    def grid(self, width: int, height: int, num_frames: int = 0) -> Grid:
        """Return one row. Raises ValueError for a size that `fit` never gives."""
        return 1, 1, self.sizes.num_tokens(width, height)

    def num_tokens(self, width: int, height: int, num_frames: int = 0) -> int:
        return self.sizes.num_tokens(width, height)


# `within` returns a processor that also scales down pictures with more pixels (0: itself). `fit`
# returns the size of a scaled picture, or of a clip's frame: at most `max_pixels`, unless the model
# takes none that small. `grid` and `num_tokens` take such sizes, and a clip's frames.
VisionProcessor = QwenProcessor | SizedProcessor


def load_processor(folder: ModelFolder) -> VisionProcessor | None:
    """Return the processor; None for a text model. Raises `UnusableFolder`."""
    if not (folder.path / _TEXT_EMBEDDINGS).is_file():
        return None
    model_type = folder.model_type or ""
    if model_type in _QWEN:
        image, video = _values(folder.path)
        return QwenProcessor.of(image, video, takes_video=_QWEN[model_type])
    config = read_object(folder.path / "config.json")
    try:
        sizes = picture_sizes(
            model_type, config, read_object(folder.path / "preprocessor_config.json")
        )
    except ValueError as error:
        raise UnusableFolder(f"{folder.path} cannot be served. {error}") from None
    if sizes is None:
        known = ", ".join((*_QWEN, *SIZED_TYPES))
        raise UnusableFolder(
            f"{folder.path} has a vision model of the type {model_type or 'unknown'!r}. Vinery "
            f"serves vision models of the types {known}: of others it does not know how many "
            "tokens a picture has."
        )
    return SizedProcessor(sizes, _MARKUPS[model_type])


def _values(path: Path) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """The values for pictures and for videos, from the files that GenAI reads."""
    both = read_object(path / "processor_config.json")
    image, video = both.get("image_processor"), both.get("video_processor")
    if isinstance(image, dict) and isinstance(video, dict):
        return image, video
    return (
        read_object(path / "preprocessor_config.json"),
        read_object(path / "video_preprocessor_config.json"),
    )


class WrongMedia(Exception):
    """The tokens of a prompt show other media than the request has."""


@dataclass(frozen=True, slots=True)
class MediaTokens:
    """Puts the right number of tokens for each picture into a prompt's ids."""

    _processor: VisionProcessor
    _kinds: Mapping[int, MediaKind]  # by the ids that are repeated
    # By the other reserved ids, the kinds of media whose markup has the id once.
    _others: Mapping[int, frozenset[MediaKind]]

    @classmethod
    def of(cls, processor: VisionProcessor, tokenizer: Tokenizer) -> Self:
        """Raises `UnusableFolder` if the tokenizer lacks the tokens of the markup."""
        markup = processor.markup
        kinds = {_id_of(tokenizer, markup.image_token): MediaKind.IMAGE}
        if markup.video_token is not None:
            kinds[_id_of(tokenizer, markup.video_token)] = MediaKind.VIDEO
        tags = {MediaKind.IMAGE: markup.encoded_image, MediaKind.VIDEO: markup.video or ""}
        others = {
            id_: frozenset(kind for kind, tag in tags.items() if name in tag)
            for id_, name in {_id_of(tokenizer, name): name for name in markup.reserved}.items()
            if id_ not in kinds
        }
        return cls(processor, kinds, others)

    def has_any(self, token_ids: Sequence[int]) -> bool:
        """Whether the ids have a token by which the engine would see a picture."""
        return not (self._kinds.keys() | self._others.keys()).isdisjoint(token_ids)

    def expand(
        self, token_ids: Sequence[int], media: Sequence[Picture | Clip]
    ) -> tuple[tuple[int, ...], tuple[PromptMedia, ...]]:
        """Return the ids with as many tokens as each picture has, and where these are. `media` are
        in the order of the prompt. Raises `WrongMedia`."""
        expanded: list[int] = []
        placed: list[PromptMedia] = []
        for id_ in token_ids:
            kind = self._kinds.get(id_)
            if kind is None:
                expanded.append(id_)
                continue
            if len(placed) == len(media):
                raise WrongMedia
            source = media[len(placed)]
            if kind is not kind_of(source):
                raise WrongMedia
            placed.append(PromptMedia(len(expanded), self.grid(source), source))
            expanded += [id_] * placed[-1].num_tokens
        for id_, kinds in self._others.items():
            if expanded.count(id_) != sum(kind_of(each.source) in kinds for each in placed):
                raise WrongMedia
        if len(placed) < len(media):
            raise WrongMedia
        return tuple(expanded), tuple(placed)

    def grid(self, source: Picture | Clip) -> Grid:
        num_frames = source.num_frames if isinstance(source, Clip) else 0
        return self._processor.grid(source.width, source.height, num_frames)


def _id_of(tokenizer: Tokenizer, name: str) -> int:
    id_ = tokenizer.token_id(name)
    if id_ is None:
        raise UnusableFolder(
            f"The tokenizer has no token {name}, by which this model sees pictures."
        )
    return id_


def kind_of(source: Picture | Clip) -> MediaKind:
    return MediaKind.VIDEO if isinstance(source, Clip) else MediaKind.IMAGE
