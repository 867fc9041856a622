"""How OpenVINO GenAI shows pictures to a vision model (measured, 2026.4.1).

A prompt is a text, in which each picture's text is replaced by the picture's tokens. A picture that
does not fit its text would shift all later tokens, so every request is checked first.

Positions of most families count tokens. Qwen's have three rows: time, height and width. There the
tokens of a picture share the time, and the text behind a picture goes on after the largest number.
A token's positions are unique in a prompt, and identify the token in a step.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt
import openvino as ov
import openvino_genai as genai

from vinery_serving.core.media import Detail
from vinery_serving.core.picture_sizes import PictureSizes, picture_sizes
from vinery_serving.engine.coded_tokenizer import coded
from vinery_serving.engine.prefix_cache import TokenArray
from vinery_serving.transport.messages import MediaInput

_FRAMES_OF_PATCH: Final = 2
_MIN_PIXELS: Final = 56 * 56  # GenAI's value for folders without one
_TOKENS_PER_S: Final = 2  # of the positions of frames, where the model's config.json has no number
_ROW_BITS: Final = 21  # a position in one number: rows of 21 bits each
_NUM_ROWS: Final = 3
_SAME: Final = 1 | 1 << _ROW_BITS | 1 << 2 * _ROW_BITS
_FIRST_IDENTITY: Final = 1 << 40  # more than any id of a vocabulary
_WHOLE_STEP_TOKENS: Final = 2048  # room in a step for pictures that must not be divided between two
_MAX_SIDE: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class PictureTexts:
    """The tokens of a family's pictures by their texts, and what GenAI takes for a picture."""

    shown: str  # in the prompt that GenAI gets
    image: str  # of each part of a picture
    start: str | None = None  # before a picture
    end: str | None = None  # behind it
    video: str | None = None  # of each part of a video; None: the model takes none
    # GenAI writes this text around pictures. Prompts already have it in the right places.
    added: str | None = None
    first_position: int = 0  # of a prompt
    # Whether the parts of a picture attend to later parts, so that a step must have all.
    is_whole: bool = False


_QWEN: Final = PictureTexts(
    "<|vision_start|><|image_pad|><|vision_end|>",
    "<|image_pad|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|video_pad|>",
)
_LLAVA: Final = PictureTexts("<image>", "<image>", added="\n")
_FAMILIES: Final[Mapping[str, PictureTexts]] = {
    "qwen2_vl": _QWEN,
    "qwen2_5_vl": _QWEN,
    "qwen3_vl": _QWEN,
    "gemma3": PictureTexts(
        "<start_of_image>",
        "<image_soft_token>",
        "<start_of_image>",
        "<end_of_image>",
        added="\n",
        first_position=1,
        is_whole=True,
    ),
    "llava": _LLAVA,
    "llava_next": _LLAVA,
    "internvl_chat": PictureTexts("<image>", "<IMG_CONTEXT>", "<img>", "</img>"),
}
MODEL_TYPES: Final = tuple(_FAMILIES)


@dataclass(frozen=True, slots=True)
class SquareGrid:
    """Qwen's sizes: a token is a square of pixels."""

    side: int  # pixels of a token's square
    least_pixels: int  # of a picture; GenAI scales a smaller one up
    tokens_per_s: int

    @classmethod
    def of(cls, config: Mapping[str, Any], folder: Path) -> Self:
        """Raises RuntimeError."""
        values = _object(folder / "processor_config.json").get("image_processor")
        if not isinstance(values, dict):
            values = _object(folder / "preprocessor_config.json")
        side = int(values.get("patch_size", 14)) * int(values.get("merge_size", 2))
        vision = config.get("vision_config") or {}
        tokens_per_s = int(vision.get("tokens_per_second", _TOKENS_PER_S))
        least = values.get("min_pixels")
        if least is None and values.get("max_pixels") is None:
            least = (values.get("size") or {}).get("shortest_edge")
        return cls(side, int(least or _MIN_PIXELS), tokens_per_s)

    def check(self, media: MediaInput) -> None:
        """Raises ValueError."""
        depth, rows, columns = media.grid
        size = (media.height, media.width)
        if min(depth, rows, columns) < 1 or size != (rows * self.side, columns * self.side):
            raise ValueError("The size of a picture is not that of its tokens.")
        if depth != max(1, -(-media.num_frames // _FRAMES_OF_PATCH)):
            raise ValueError("The frames of a video are not as many as its tokens.")

    def smallest(self) -> MediaInput:
        squares = max(2, -(-int(np.ceil(np.sqrt(self.least_pixels))) // self.side))
        return MediaInput(0, (1, squares, squares), squares * self.side, squares * self.side)


@dataclass(frozen=True, slots=True)
class SizedGrid:
    sizes: PictureSizes

    def check(self, media: MediaInput) -> None:
        """Raises ValueError."""
        if media.num_frames:
            raise ValueError("This model takes pictures, but no video.")
        if media.grid != (1, 1, self.sizes.num_tokens(media.width, media.height)):
            raise ValueError("The size of a picture is not that of its tokens.")

    def smallest(self) -> MediaInput:
        width, height = self.sizes.within(1).fit(_MAX_SIDE, _MAX_SIDE, Detail.LOW, 1)
        return MediaInput(0, (1, 1, self.sizes.num_tokens(width, height)), height, width)


@dataclass(frozen=True, slots=True)
class VisionModel:
    """The engine's facts about a vision model's folder."""

    texts: PictureTexts
    start_id: int | None
    end_id: int | None
    image_id: int
    video_id: int | None
    grid: SquareGrid | SizedGrid

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Raises RuntimeError for a model that Vinery does not know."""
        config = _object(folder / "config.json")
        model_type = config.get("model_type")
        texts = _FAMILIES.get(str(model_type))
        if texts is None:
            known = ", ".join(MODEL_TYPES)
            raise RuntimeError(f"Vision models must be of the types {known}, not {model_type!r}.")
        tokenizer = genai.Tokenizer(str(folder))
        start_id, end_id, video_id = (
            None if text is None else _token_id(text, tokenizer)
            for text in (texts.start, texts.end, texts.video)
        )
        image_id = _token_id(texts.image, tokenizer)
        try:
            processor = _object(folder / "preprocessor_config.json")
            sizes = picture_sizes(str(model_type), config, processor)
        except ValueError as error:
            raise RuntimeError(f"{folder} cannot be loaded. {error}") from None
        grid = SquareGrid.of(config, folder) if sizes is None else SizedGrid(sizes)
        return cls(texts, start_id, end_id, image_id, video_id, grid)

    @property
    def literals(self) -> Mapping[str, int | None]:
        """The texts that GenAI writes into prompts, with their ids; None: the text is left out."""
        texts = self.texts
        ids: dict[str | None, int | None] = {
            texts.start: self.start_id,
            texts.end: self.end_id,
            texts.image: self.image_id,
            texts.video: self.video_id,
            texts.added: None,
        }
        return {text: id_ for text, id_ in ids.items() if text is not None}

    @property
    def has_rows(self) -> bool:
        return isinstance(self.grid, SquareGrid)

    def positions(self, values: npt.NDArray[np.int32]) -> TokenArray:
        positions = values.astype(np.int64)
        return _code(*positions.reshape(_NUM_ROWS, -1)) if self.has_rows else positions

    @property
    def num_framing(self) -> int:
        return int(self.start_id is not None)

    @property
    def least_step_tokens(self) -> int:
        """How many tokens a step must be able to compute; 0: any number."""
        return _WHOLE_STEP_TOKENS if self.texts.is_whole else 0

    def num_undivided(self, media: Sequence[MediaInput]) -> int:
        """Return how many of a prompt's first tokens must be computed in one step; 0: none."""
        if not media or not self.texts.is_whole:
            return 0
        return media[-1].start + media[-1].num_tokens

    def check(self, token_ids: TokenArray, media: Sequence[MediaInput]) -> None:
        """Raises ValueError if the prompt does not show exactly these media."""
        end = 0
        for each in media:
            self.grid.check(each)
            pad_id = self.image_id if each.num_frames == 0 else self.video_id
            framed = (self.start_id, *[pad_id] * each.num_tokens, self.end_id)
            expected = [id_ for id_ in framed if id_ is not None]
            first = each.start - self.num_framing
            if first < end or token_ids[first : first + len(expected)].tolist() != expected:
                raise ValueError("A picture is not where the prompt shows it, or has other tokens.")
            end = first + len(expected)
        special = [id_ for id_ in (self.start_id, self.image_id, self.video_id) if id_ is not None]
        num_expected = sum(each.num_tokens + self.num_framing for each in media)
        if np.isin(token_ids, special).sum() != num_expected:
            raise ValueError("The prompt shows pictures that were not sent.")
        kinds = [each.num_frames == 0 for each in media]
        if kinds != sorted(kinds):
            raise ValueError("Videos must come before pictures in the prompt.")

    def text(self, token_ids: TokenArray, media: Sequence[MediaInput]) -> str:
        parts: list[str] = []
        at = 0
        for each in media:
            shown, video = self.texts.shown, self.texts.video
            if each.num_frames and video is not None:
                shown = shown.replace(self.texts.image, video)
            parts += (coded(token_ids[at : each.start - self.num_framing]), shown)
            at = each.start + each.num_tokens + self.num_framing
        return "".join((*parts, coded(token_ids[at:])))


@dataclass(eq=False)
class VisionPrompt:
    """The media of a request, and their effects on its tokens."""

    _model: VisionModel
    _num_tokens: int  # of the prompt
    media: Sequence[MediaInput]
    _pixels: bytes  # of all media

    def tensors(self, *, are_videos: bool) -> list[Any]:
        """Return the pictures, uint8 (height, width, 3), or the videos, with a first dimension of
        frames."""
        tensors: list[Any] = []
        start = 0
        for each in self.media:
            end = start + each.num_bytes
            if (each.num_frames > 0) == are_videos:
                values = np.frombuffer(self._pixels, np.uint8)[start:end]
                shape = (each.num_frames,) if are_videos else ()
                tensors.append(ov.Tensor(values.reshape(*shape, each.height, each.width, 3)))
            start = end
        return tensors

    def identities(self, token_ids: TokenArray) -> TokenArray:
        """Return the ids with other numbers for the tokens of each picture, so that prompts are
        equal only if their pictures are."""
        if not self.media:
            return token_ids
        token_ids = token_ids.copy()
        for each, digest in zip(self.media, self._digests, strict=True):
            numbers = digest + np.arange(each.num_tokens)
            token_ids[each.start : each.start + each.num_tokens] = numbers
        return token_ids

    @cached_property
    def _digests(self) -> list[int]:
        digests: list[int] = []
        start = 0
        for each in self.media:
            shown = sha256(repr((each.grid, each.num_frames)).encode())
            shown.update(memoryview(self._pixels)[start : start + each.num_bytes])
            digests.append(_FIRST_IDENTITY + int.from_bytes(shown.digest()[:5]))
            start += each.num_bytes
        return digests

    @property
    def num_saltable(self) -> int:
        """How many of the first tokens may have a salt: GenAI looks for the ids of pictures."""
        if not self.media:
            return self._num_tokens
        return self.media[0].start - self._model.num_framing

    def with_grids(self, token_ids: TokenArray, modulus: int, num_salts: int) -> TokenArray:
        """Return the ids with a salt for the shape of each picture in the token before it. The
        prefix cache compares embeddings. A picture of one colour has the same embeddings in any
        shape, but other positions in rows."""
        if not self._model.has_rows:
            return token_ids
        token_ids = token_ids.copy()
        for each in self.media:
            if each.start >= 2:
                number = 1 + (each.grid[1] + 31 * each.grid[0]) % (num_salts // 2)
                token_ids[each.start - 2] += number * modulus
        return token_ids

    @cached_property
    def _codes(self) -> tuple[TokenArray, int]:
        """The position of each prompt token in one number, and the next number of a row."""
        grid = self._model.grid
        if not isinstance(grid, SquareGrid):
            first = self._model.texts.first_position
            next_ = first + self._num_tokens
            return np.arange(first, next_, dtype=np.int64), next_
        rows: list[TokenArray] = []
        at = next_ = 0
        for each in self.media:
            depth, height, width = each.grid
            rows.append(_text_codes(next_, each.start - at))
            next_ += each.start - at
            times, ys, xs = np.indices((depth, height, width), dtype=np.int64).reshape(3, -1)
            rows.append(_code(next_ + times * grid.tokens_per_s, next_ + ys, next_ + xs))
            next_ += max((depth - 1) * grid.tokens_per_s + 1, height, width)
            at = each.start + each.num_tokens
        rows.append(_text_codes(next_, self._num_tokens - at))
        return np.concatenate(rows), next_ + self._num_tokens - at

    @property
    def _unit(self) -> int:
        """By how much the position of the next text token is greater."""
        return _SAME if self._model.has_rows else 1

    def position_at(self, index: int) -> int:
        codes, next_ = self._codes
        if index < len(codes):
            return int(codes[index])
        return (next_ + index - len(codes)) * self._unit

    def index_of(self, position: int) -> int:
        """Return the index of the token with this position; -1: none has it."""
        codes, next_ = self._codes
        found = np.flatnonzero(codes == position)
        if len(found):
            return int(found[0])
        number, rest = divmod(position, self._unit)
        return len(codes) + number - next_ if rest == 0 and number >= next_ else -1


def _code(times: TokenArray, ys: TokenArray, xs: TokenArray) -> TokenArray:
    return (times << 2 * _ROW_BITS) | (ys << _ROW_BITS) | xs


def _text_codes(first: int, num: int) -> TokenArray:
    return np.arange(first, first + num, dtype=np.int64) * _SAME


def _token_id(text: str, tokenizer: Any) -> int:
    ids = tokenizer.encode(text, add_special_tokens=False).input_ids.data.reshape(-1)
    if len(ids) != 1:
        raise RuntimeError(f"The tokenizer has no token {text}.")
    return int(ids[0])


def _object(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise RuntimeError(f"{path} cannot be read: {error}.") from error
    return value if isinstance(value, dict) else {}
