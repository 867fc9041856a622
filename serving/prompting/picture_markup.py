"""The texts by which prompts of a vision model show pictures."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Markup:
    """The texts by which prompts of a model family show pictures."""

    image: str  # a picture in a rendered prompt
    video: str | None  # a video; None: the model takes none
    image_token: str  # in `image`, the token that is repeated for each part of the picture
    video_token: str | None
    # Tokens that the engine takes for pictures wherever they are. No text may have them.
    reserved: tuple[str, ...]
