"""The texts by which prompts of a vision model show pictures."""

from dataclasses import dataclass


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
