"""How OpenVINO GenAI shows pictures to a model of the Qwen-VL families (measured, 2026.4.1).

The pipeline takes a prompt as text, encodes its pictures at once, and puts as many tokens where
each picture's text stands as the picture has. A text without its picture, a picture without its
text or a picture of another size would shift all that follows, so every request is checked first.

Positions have three rows: time, height and width. The tokens of a picture share the time, and the
text behind a picture goes on after the largest number. The positions of a token are unique in its
prompt, so they identify it in a step.
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

from vinery_serving.engine.coded_tokenizer import coded
from vinery_serving.engine.prefix_cache import TokenArray
from vinery_serving.transport.messages import MediaInput

_START: Final = "<|vision_start|>"
_END: Final = "<|vision_end|>"
_IMAGE: Final = "<|image_pad|>"
_VIDEO: Final = "<|video_pad|>"
MODEL_TYPES: Final = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl")
_FRAMES_OF_PATCH: Final = 2
_MIN_PIXELS: Final = 56 * 56  # GenAI's value for folders without one
# Of the positions of frames, where the model's config.json has no number.
_TOKENS_PER_S: Final = 2
# A position in one number: rows of 21 bits each.
_ROW_BITS: Final = 21
_SAME: Final = 1 | 1 << _ROW_BITS | 1 << 2 * _ROW_BITS
# More than any id of a vocabulary.
_FIRST_IDENTITY: Final = 1 << 40


@dataclass(frozen=True, slots=True)
class VisionModel:
    """What the engine must know of a vision model's folder."""

    start_id: int
    end_id: int
    image_id: int
    video_id: int
    side: int  # pixels of a token's square
    least_pixels: int  # of a picture; GenAI scales a smaller one up
    tokens_per_s: int

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Raises RuntimeError for a model that Vinery does not know."""
        config = _object(folder / "config.json")
        model_type = config.get("model_type")
        if model_type not in MODEL_TYPES:
            known = ", ".join(MODEL_TYPES)
            raise RuntimeError(f"Vision models must be of the types {known}, not {model_type!r}.")
        tokenizer = genai.Tokenizer(str(folder))
        ids: list[int] = []
        for text in (_START, _END, _IMAGE, _VIDEO):
            encoded = tokenizer.encode(text, add_special_tokens=False).input_ids.data.reshape(-1)
            if len(encoded) != 1:
                raise RuntimeError(f"The tokenizer has no token {text}.")
            ids.append(int(encoded[0]))
        values = _object(folder / "processor_config.json").get("image_processor")
        if not isinstance(values, dict):
            values = _object(folder / "preprocessor_config.json")
        side = int(values.get("patch_size", 14)) * int(values.get("merge_size", 2))
        vision = config.get("vision_config") or {}
        tokens_per_s = int(vision.get("tokens_per_second", _TOKENS_PER_S))
        start_id, end_id, image_id, video_id = ids
        least_pixels = _least_pixels(values)
        return cls(start_id, end_id, image_id, video_id, side, least_pixels, tokens_per_s)

    @property
    def literals(self) -> Mapping[str, int]:
        """The texts that GenAI writes into prompts, with their ids."""
        ids = (self.start_id, self.end_id, self.image_id, self.video_id)
        return dict(zip((_START, _END, _IMAGE, _VIDEO), ids, strict=True))

    def check(self, token_ids: TokenArray, media: Sequence[MediaInput]) -> None:
        """Raises ValueError if the prompt does not show exactly these media."""
        expected = np.zeros(len(token_ids), bool)
        starts = [each.start for each in media]
        if starts != sorted(starts):
            raise ValueError("The pictures are not in the order of the prompt.")
        for each in media:
            self._check_size(each)
            end = each.start + each.num_tokens
            pad_id = self.image_id if each.num_frames == 0 else self.video_id
            is_framed = each.start >= 1 and end < len(token_ids)
            if not is_framed or token_ids[each.start - 1] != self.start_id:
                raise ValueError("A picture does not begin where the prompt shows it.")
            if token_ids[end] != self.end_id or (token_ids[each.start : end] != pad_id).any():
                raise ValueError("A picture does not have as many tokens as the prompt shows.")
            expected[each.start : end] = True
        pads = np.isin(token_ids, (self.image_id, self.video_id))
        num_starts = int((token_ids == self.start_id).sum())
        if not np.array_equal(pads, expected) or num_starts != len(media):
            raise ValueError("The prompt shows pictures that were not sent.")
        kinds = [each.num_frames == 0 for each in media]
        if kinds != sorted(kinds):
            raise ValueError("Videos must come before pictures in the prompt.")

    def _check_size(self, media: MediaInput) -> None:
        depth, rows, columns = media.grid
        size = (media.height, media.width)
        if min(depth, rows, columns) < 1 or size != (rows * self.side, columns * self.side):
            raise ValueError("The size of a picture is not that of its tokens.")
        if depth != max(1, -(-media.num_frames // _FRAMES_OF_PATCH)):
            raise ValueError("The frames of a video are not as many as its tokens.")

    def text(self, token_ids: TokenArray, media: Sequence[MediaInput]) -> str:
        """Return the prompt for GenAI: coded ids, and a short text for each picture."""
        parts: list[str] = []
        at = 0
        for each in media:
            parts.append(coded(token_ids[at : each.start - 1]))
            parts.append(f"{_START}{_IMAGE if each.num_frames == 0 else _VIDEO}{_END}")
            at = each.start + each.num_tokens + 1
        return "".join((*parts, coded(token_ids[at:])))


class VisionPrompt:
    """The media of one request, and what follows from them for its tokens."""

    def __init__(
        self, model: VisionModel, num_tokens: int, media: Sequence[MediaInput], pixels: bytes
    ) -> None:
        """`num_tokens` are those of the prompt, `pixels` those of all media."""
        self._model = model
        self._num_tokens = num_tokens
        self.media = media
        self._pixels = pixels

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
        return self.media[0].start - 1 if self.media else self._num_tokens

    def with_grids(self, token_ids: TokenArray, modulus: int, num_salts: int) -> TokenArray:
        """Return the ids with a salt for the shape of each picture in the token before it.

        The prefix cache compares embeddings. Those of a picture of one colour are the same in any
        shape, while their positions are not.
        """
        token_ids = token_ids.copy()
        for each in self.media:
            if each.start >= 2:
                number = 1 + (each.grid[1] + 31 * each.grid[0]) % (num_salts // 2)
                token_ids[each.start - 2] += number * modulus
        return token_ids

    @cached_property
    def _codes(self) -> tuple[TokenArray, int]:
        """The position of each prompt token in one number, and the next number of a row."""
        rows: list[TokenArray] = []
        at = next_ = 0
        for each in self.media:
            depth, height, width = each.grid
            rows.append(_text_codes(next_, each.start - at))
            next_ += each.start - at
            times, ys, xs = np.indices((depth, height, width), dtype=np.int64).reshape(3, -1)
            rows.append(_code(next_ + times * self._model.tokens_per_s, next_ + ys, next_ + xs))
            next_ += max((depth - 1) * self._model.tokens_per_s + 1, height, width)
            at = each.start + each.num_tokens
        rows.append(_text_codes(next_, self._num_tokens - at))
        return np.concatenate(rows), next_ + self._num_tokens - at

    def position_at(self, index: int) -> int:
        """Return the position of the token with this index, behind the prompt, too."""
        codes, next_ = self._codes
        if index < len(codes):
            return int(codes[index])
        return (next_ + index - len(codes)) * _SAME

    def index_of(self, position: int) -> int:
        """Return the index of the token with this position; -1: none has it."""
        codes, next_ = self._codes
        found = np.flatnonzero(codes == position)
        if len(found):
            return int(found[0])
        number, rest = divmod(position, _SAME)
        return len(codes) + number - next_ if rest == 0 and number >= next_ else -1


def joined_rows(rows: npt.NDArray[np.int32]) -> TokenArray:
    """Return positions, (3, num_tokens), as one number each, as `VisionPrompt` has them."""
    return _code(*rows.astype(np.int64))


def _code(times: TokenArray, ys: TokenArray, xs: TokenArray) -> TokenArray:
    return (times << 2 * _ROW_BITS) | (ys << _ROW_BITS) | xs


def _text_codes(first: int, num: int) -> TokenArray:
    return np.arange(first, first + num, dtype=np.int64) * _SAME


def _least_pixels(values: Mapping[str, Any]) -> int:
    size = values.get("size") or {}
    least = values.get("min_pixels")
    if least is None and values.get("max_pixels") is None:
        least = size.get("shortest_edge")
    return int(least or _MIN_PIXELS)


def _object(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise RuntimeError(f"{path} cannot be read: {error}.") from error
    return value if isinstance(value, dict) else {}
