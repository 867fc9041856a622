"""The processor of a vision model's folder: what its pictures cost, and how prompts show them.

The numbers follow from the folder's files as OpenVINO GenAI reads them, so a prompt's tokens are
known before the engine has seen a picture. Pictures are scaled to a size that GenAI keeps.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, Self

from vinery_serving.core.media import Clip, Detail, MediaKind, Picture
from vinery_serving.prompting.folder import UnusableFolder
from vinery_serving.prompting.tokenizer import Tokenizer

Grid = tuple[int, int, int]  # tokens: frames or pairs of frames, rows, columns


@dataclass(frozen=True, slots=True)
class Markup:
    """The texts by which prompts of a model family show pictures."""

    image: str  # a picture in a rendered prompt
    video: str | None  # a video; None: the model takes none
    image_token: str  # in `encoded_image`, the token that is repeated for each part of the picture
    video_token: str | None
    # Tokens that the engine takes for pictures wherever they are. No text may have them.
    reserved: tuple[str, ...]
    # What replaces `image` before a prompt is encoded; None: nothing does.
    replacement: str | None = None

    @property
    def encoded_image(self) -> str:
        """A picture in the text that is encoded."""
        return self.replacement or self.image

    def with_encoded_images(self, text: str) -> str:
        """Return a rendered prompt as it is encoded."""
        return text if self.replacement is None else text.replace(self.image, self.replacement)


@dataclass(frozen=True, slots=True)
class PromptMedia:
    """A picture or clip in a prompt."""

    start: int  # index of the first of its tokens, which follow each other
    grid: Grid
    source: Picture | Clip

    @property
    def num_tokens(self) -> int:
        return self.grid[0] * self.grid[1] * self.grid[2]

    @property
    def span(self) -> tuple[int, int]:
        """The index of its first token, and of the token after its last."""
        return self.start, self.start + self.num_tokens


class VisionProcessor(Protocol):
    """What pictures of one size become."""

    @property
    def markup(self) -> Markup: ...

    @property
    def takes_video(self) -> bool:
        """Whether prompts may have clips."""

    def within(self, max_pixels: int) -> Self:
        """Return a processor that also scales down what has more pixels; 0: itself."""

    def fit(self, width: int, height: int, detail: Detail, max_pixels: int) -> tuple[int, int]:
        """Return the width and height to scale an upright picture to, or a frame of a clip.

        The result has at most `max_pixels`, unless the model takes no picture that small.
        """

    def grid(self, width: int, height: int, num_frames: int = 0) -> Grid:
        """Return the tokens of a picture in a size that `fit` gave; with `num_frames` of a clip."""

    def num_tokens(self, width: int, height: int, num_frames: int = 0) -> int:
        """Return the product of the grid."""


class WrongMedia(Exception):
    """The tokens of a prompt show other media than the request has."""


class MediaTokens:
    """Puts the right number of tokens for each picture into a prompt's ids."""

    def __init__(
        self,
        processor: VisionProcessor,
        kinds: Mapping[int, MediaKind],
        others: Mapping[int, frozenset[MediaKind]],
    ) -> None:
        """`kinds` are the ids that are repeated. `others` are the other reserved ids, with the
        kinds whose markup has them once."""
        self._processor = processor
        self._kinds = kinds
        self._others = others

    @classmethod
    def of(cls, processor: VisionProcessor, tokenizer: Tokenizer) -> Self:
        """Raises `UnusableFolder` if the tokenizer lacks the tokens of the markup."""
        markup = processor.markup
        kinds = {_id_of(tokenizer, markup.image_token): MediaKind.IMAGE}
        if markup.video_token is not None:
            kinds[_id_of(tokenizer, markup.video_token)] = MediaKind.VIDEO
        tags = {MediaKind.IMAGE: markup.encoded_image, MediaKind.VIDEO: markup.video or ""}
        reserved = {_id_of(tokenizer, name): name for name in markup.reserved}
        others = {
            id_: frozenset(kind for kind, tag in tags.items() if name in tag)
            for id_, name in reserved.items()
            if id_ not in kinds
        }
        return cls(processor, kinds, others)

    def has_any(self, token_ids: Sequence[int]) -> bool:
        """Whether the ids have a token by which the engine would see a picture."""
        return not (self._kinds.keys() | self._others.keys()).isdisjoint(token_ids)

    def expand(
        self, token_ids: Sequence[int], media: Sequence[Picture | Clip]
    ) -> tuple[tuple[int, ...], tuple[PromptMedia, ...]]:
        """Return the ids with as many tokens as each picture has, and where these are.

        `media` are in the order of the prompt. Raises `WrongMedia`.
        """
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
            grid = self.grid(source)
            placed.append(PromptMedia(len(expanded), grid, source))
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
