"""Requests for embeddings, scores and tokens, independent of the protocol of their client."""

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

from vinery_serving.core.media import MediaPart
from vinery_serving.core.request import NOTHING_UNUSED, Conversation, Encoding, PartsOf, Unused
from vinery_serving.core.tasks import Endpoint


class TextRole(StrEnum):
    """The role of a text, for a model that has different prefixes for queries and documents."""

    QUERY = "query"
    DOCUMENT = "document"


class TextPair(NamedTuple):
    query: str
    document: str


PoolingInput = str | tuple[int, ...] | TextPair  # a text, its token ids, or a pair of texts


@dataclass(frozen=True, slots=True)
class Truncation:
    """Keep so many tokens of a text that is too long, with the special tokens around it."""

    max_tokens: int | None = None  # None: as many as the model takes
    keeps_start: bool = True


@dataclass(frozen=True, slots=True)
class PoolingRequest:
    """Asks for one vector or score for each input, in the order of the inputs."""

    endpoint: Endpoint
    model: str | None
    inputs: tuple[PoolingInput, ...]
    param: str  # the client's name for the inputs, for error messages
    truncation: Truncation | None = None  # None: a text that is too long is refused
    max_document_tokens: int | None = None  # the document of each pair is cut to so many
    dimensions: int | None = None  # the first numbers of each vector; None: all
    role: TextRole | None = None
    prompt_name: str | None = None  # of a text before the inputs that the model's files name
    unused: Unused = NOTHING_UNUSED
    sent: str = ""  # as in `GenerationRequest`
    end_user: str = ""  # the client's own user

    @property
    def num_chars(self) -> int:
        return sum(_num_chars(each) for each in self.inputs)


def _num_chars(text: PoolingInput) -> int:
    if isinstance(text, str):
        return len(text)
    return len(text.query) + len(text.document) if isinstance(text, TextPair) else 0


@dataclass(frozen=True, slots=True)
class PoolingDraft:
    """A request as token ids. `texts` and `second_starts` have one entry for each input."""

    texts: tuple[bytes, ...]  # int32 little endian, (num_tokens,)
    second_starts: tuple[int, ...]  # index of the first token of the second text; 0: there is none
    num_tokens: int  # of all texts
    dimensions: int | None = None


@dataclass(frozen=True, slots=True)
class Padding:
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
        if not isinstance(self.prompt, Conversation):
            return self
        return replace(self, prompt=self.prompt.with_media(parts_of))


@dataclass(frozen=True, slots=True)
class Tokenized:
    """The token ids of each text, and on request their vocabulary strings."""

    token_ids: tuple[tuple[int, ...], ...]
    token_strings: tuple[tuple[str, ...], ...] | None = None
    max_context: int | None = None  # of the model, in tokens; None: unknown
