"""`/tokenize` and `/detokenize`: the bodies of vLLM and of OVMS, and their answers.

vLLM asks with `prompt` or `messages` and gets counts beside the tokens, OVMS asks with
`text`, one or many, and gets nothing but tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field, PlainValidator

from serving.core.errors import InvalidRequest, MissingParameter
from serving.core.request import Conversation, Encoding
from serving.core.tokens import Padding, Tokenized, TokenizeRequest
from serving.protocols.fields import ModelName, TokenId
from serving.protocols.messages import WireMessage
from serving.protocols.prompting import PromptFields
from serving.protocols.reading import Wire, invalid, read_model, read_object
from serving.protocols.sse import json_bytes
from serving.protocols.tools import WireTools, clients_tools

# Seconds of work for a tokenizer, and far above any model's context.
MAX_CHARS = 4_000_000
MAX_TOKENS = 1_000_000
_MAX_TEXTS = 2048


def _read_texts(value: object) -> str | tuple[str, ...]:
    if isinstance(value, str):
        return value
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise invalid("must be a string or an array of strings")
    if not 1 <= len(value) <= _MAX_TEXTS:
        raise invalid(f"must have from 1 to {_MAX_TEXTS} entries")
    return tuple(value)


_ManyTexts = Annotated[list[str], Field(min_length=1, max_length=_MAX_TEXTS)]
Texts = Annotated[
    str | tuple[str, ...],
    PlainValidator(_read_texts, json_schema_input_type=str | _ManyTexts),
]


class TokenizeBody(PromptFields):
    """The union of both systems' bodies."""

    model: ModelName | None = None
    # vLLM's
    prompt: str | None = None
    messages: Annotated[list[WireMessage], Field(min_length=1, fail_fast=True)] | None = None
    tools: WireTools | None = None
    return_token_strs: bool | None = None
    # OVMS's
    text: Texts | None = None
    max_length: Annotated[int, Field(ge=1, le=MAX_TOKENS)] | None = None
    pad_to_max_length: bool | None = None
    padding_side: Literal["left", "right"] | None = None
    # Both have this one.
    add_special_tokens: bool | None = None

    def request(self) -> TokenizeRequest:
        """Raises `InvalidRequest` for a body that asks for nothing, for too much, or for
        several things."""
        self._refuse_contradictions_of_sources()
        return TokenizeRequest(
            model=self.model,
            prompt=self._prompt(),
            # Without anything said, texts get what the model wants around them.
            encoding=Encoding(self.add_special_tokens, self.max_length, keeps_start=True),
            padding=self._padding(),
            wants_token_strings=bool(self.return_token_strs),
        )

    def _prompt(self) -> tuple[str, ...] | Conversation:
        if self.messages is not None:
            messages = tuple(message.to_core() for message in self.messages)
            _refuse_length("messages", [message.text for message in messages])
            return Conversation(
                messages=messages,
                tools=clients_tools(self.tools or ()),
                template_kwargs=self.template_kwargs,
                rendering=self.rendering(),
            )
        param, source = ("prompt", self.prompt) if self.text is None else ("text", self.text)
        texts = (source,) if isinstance(source, str) else source or ()
        _refuse_length(param, texts)
        return texts

    def _padding(self) -> Padding | None:
        if not self.pad_to_max_length:
            return None
        if self.max_length is None:
            raise MissingParameter(
                "`max_length` is required with `pad_to_max_length`.", param="max_length"
            )
        return Padding(self.max_length, is_left=self.padding_side == "left")

    def _refuse_contradictions_of_sources(self) -> None:
        sources = {"prompt": self.prompt, "messages": self.messages, "text": self.text}
        given = [name for name, value in sources.items() if value is not None]
        if not given:
            raise MissingParameter(
                "`prompt` is required: or send `messages` or `text`.", param="prompt"
            )
        if len(given) > 1:
            raise InvalidRequest(
                f"`{given[1]}` cannot go with `{given[0]}`: send one of them.", param=given[1]
            )


def _refuse_length(param: str, texts: Sequence[str]) -> None:
    if sum(map(len, texts)) > MAX_CHARS:
        raise InvalidRequest(f"`{param}` must have at most {MAX_CHARS} characters.", param=param)


@dataclass(frozen=True, slots=True)
class TokenizeExchange:
    """A question, and how to answer it."""

    request: TokenizeRequest
    is_ovms: bool = False
    has_many: bool = False

    def body(self, tokenized: Tokenized) -> bytes:
        """The JSON of the answer, in the shape of the system whose body was sent."""
        ids, names = tokenized.token_ids, tokenized.token_strings
        if self.is_ovms:
            return json_bytes({"tokens": ids if self.has_many else ids[0]})
        return json_bytes(
            {
                "count": len(ids[0]),
                "max_model_len": tokenized.max_context,
                "tokens": ids[0],
                "token_strs": None if names is None else names[0],
            }
        )


def parse_tokenize(body: bytes) -> TokenizeExchange:
    """Read a request to tokenize. Raises `InvalidRequest`."""
    wire = read_model(TokenizeBody, read_object(body))
    is_ovms = wire.text is not None
    return TokenizeExchange(wire.request(), is_ovms, has_many=isinstance(wire.text, tuple))


class DetokenizeBody(Wire):
    """vLLM's."""

    model: ModelName | None = None
    tokens: Annotated[list[TokenId], Field(max_length=MAX_TOKENS, fail_fast=True)]


@dataclass(frozen=True, slots=True)
class DetokenizeExchange:
    """A question, and how to answer it."""

    model: str | None
    token_ids: tuple[int, ...]

    def body(self, text: str) -> bytes:
        """The JSON of the answer."""
        return json_bytes({"prompt": text})


def parse_detokenize(body: bytes) -> DetokenizeExchange:
    """Read a request to detokenize. Raises `InvalidRequest`."""
    wire = read_model(DetokenizeBody, read_object(body))
    return DetokenizeExchange(wire.model, tuple(wire.tokens))
