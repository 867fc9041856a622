"""Requests to a model's tokenizer, and their results."""

from dataclasses import dataclass, replace

from vinery_serving.core.media import MediaPart
from vinery_serving.core.request import Conversation, Encoding, PartsOf


@dataclass(frozen=True, slots=True)
class Padding:
    """Add pad tokens until a text has `length` tokens."""

    length: int  # tokens
    is_left: bool = False  # whether pad tokens go before the text


@dataclass(frozen=True, slots=True)
class TokenizeRequest:
    """Return the tokens of a prompt: of texts, or of messages in a chat template."""

    model: str | None
    prompt: tuple[str, ...] | Conversation
    encoding: Encoding
    padding: Padding | None = None
    wants_token_strings: bool = False

    @property
    def media(self) -> tuple[MediaPart, ...]:
        return self.prompt.media if isinstance(self.prompt, Conversation) else ()

    def with_media(self, parts_of: PartsOf) -> "TokenizeRequest":
        """Return the request with other parts for each of its media."""
        if not isinstance(self.prompt, Conversation):
            return self
        return replace(self, prompt=self.prompt.with_media(parts_of))


@dataclass(frozen=True, slots=True)
class Tokenized:
    """The token ids of each text, and on request their vocabulary strings."""

    token_ids: tuple[tuple[int, ...], ...]
    token_strings: tuple[tuple[str, ...], ...] | None = None
    max_context: int | None = None  # of the model, in tokens; None: unknown
