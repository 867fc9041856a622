"""Gemma 3, LLaVA and InternVL: pictures in sizes that follow from the folder alone.

What a prompt shows of a picture is what the processors of these families write.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, Self

from vinery_serving.core.media import Detail
from vinery_serving.core.picture_sizes import PictureSizes
from vinery_serving.prompting.picture_markup import Markup
from vinery_serving.prompting.vision import Grid

_LLAVA: Final = Markup("<image>", None, "<image>", None, ("<image>",))
_MARKUPS: Final[Mapping[str, Markup]] = {
    # The line breaks are part of a picture, and may be one token with those of the text.
    "gemma3": Markup(
        "<start_of_image>",
        None,
        "<image_soft_token>",
        None,
        ("<start_of_image>", "<image_soft_token>", "<end_of_image>"),
        "\n\n<start_of_image><image_soft_token><end_of_image>\n\n",
    ),
    "llava": _LLAVA,
    "llava_next": _LLAVA,
    "internvl_chat": Markup(
        "<img><IMG_CONTEXT></img>",
        None,
        "<IMG_CONTEXT>",
        None,
        ("<img>", "<IMG_CONTEXT>", "</img>"),
    ),
}


@dataclass(frozen=True, slots=True)
class SizedProcessor:
    """The processor of a model that takes pictures, and no videos."""

    sizes: PictureSizes
    markup: Markup

    @classmethod
    def of(cls, model_type: str, sizes: PictureSizes) -> Self:
        return cls(sizes, _MARKUPS[model_type])

    @property
    def takes_video(self) -> bool:
        return False

    def within(self, max_pixels: int) -> Self:
        return replace(self, sizes=self.sizes.within(max_pixels)) if max_pixels else self

    def fit(self, width: int, height: int, detail: Detail, max_pixels: int) -> tuple[int, int]:
        return self.sizes.fit(width, height, detail, max_pixels)

    def grid(self, width: int, height: int, num_frames: int = 0) -> Grid:
        """Return one row. Raises ValueError for a size that `fit` never gives."""
        return 1, 1, self.sizes.num_tokens(width, height)

    def num_tokens(self, width: int, height: int, num_frames: int = 0) -> int:
        return self.sizes.num_tokens(width, height)
