"""`/tokenize` and `/detokenize`: the bodies and answers of vLLM and OVMS.

A body of vLLM has `prompt` or `messages`, and the answer has counts and tokens. A body of OVMS has
`text`, one or several, and the answer has only tokens.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Final, Literal

from pydantic import Field, PlainValidator

from vinery_serving.core import field_limits
from vinery_serving.core.dialects import V1, Dialect
from vinery_serving.core.errors import MissingParameter
from vinery_serving.core.pooling import Padding, Tokenized, TokenizeRequest
from vinery_serving.core.request import Conversation, Encoding, PartsOf, Unused
from vinery_serving.protocols.common import reading
from vinery_serving.protocols.common.body_fields import Body, read_body
from vinery_serving.protocols.common.encoding import Answer, json_bytes
from vinery_serving.protocols.common.generation import ManyTexts, TemplateFields, read_texts
from vinery_serving.protocols.common.messages import WireMessage, check_media
from vinery_serving.protocols.common.tools import TOOLS, WireTools, clients_tools


def _read_texts(value: object) -> str | tuple[str, ...]:
    return value if isinstance(value, str) else read_texts(value)


Texts = Annotated[
    str | tuple[str, ...],
    PlainValidator(_read_texts, json_schema_input_type=reading.Text | ManyTexts),
]
_Messages = Annotated[
    list[WireMessage], Field(min_length=1, fail_fast=True), reading.Limited(field_limits.MESSAGES)
]

# Longer than any model's context: padding fills the answer with tokens up to this number.
_MAX_LENGTH: Final = 1_000_000


class TokenizeBody(TemplateFields):
    """The parameters of both systems."""

    model: reading.ModelName | None = reading.parameter(reading.MODEL)
    prompt: reading.Text | None = reading.parameter("A text, as in vLLM.")
    messages: _Messages | None = reading.parameter("A conversation, as in vLLM.")
    tools: WireTools | None = reading.parameter(TOOLS)
    return_token_strs: bool | None = reading.parameter(
        "Returns the vocabulary strings of the tokens."
    )
    text: Texts | None = reading.parameter("One or more texts, as in OpenVINO Model Server.")
    max_length: Annotated[int, Field(ge=1, le=_MAX_LENGTH)] | None = reading.parameter(
        "Keeps only this many tokens from the start."
    )
    pad_to_max_length: bool | None = reading.parameter("Adds pad tokens up to `max_length`.")
    padding_side: Literal["left", "right"] | None = reading.parameter(
        "The side of the padding. Default: `right`."
    )
    add_special_tokens: bool | None = reading.parameter(
        "Whether the tokenizer adds tokens such as BOS. Default: only to texts, because chat "
        "templates write their own."
    )

    def request(self, dialect: Dialect) -> TokenizeRequest:
        """Return the request. Raises `InvalidRequest` for no, several or too long sources."""
        self._require_one_source()
        return TokenizeRequest(
            model=self.model,
            prompt=self._prompt(dialect),
            encoding=Encoding(self.add_special_tokens, self.max_length, keeps_start=True),
            padding=self._padding(),
            wants_token_strings=bool(self.return_token_strs),
        )

    def _prompt(self, dialect: Dialect) -> tuple[str, ...] | Conversation:
        if self.messages is not None:
            conversation = Conversation(
                messages=tuple(
                    message.to_core().within(f"messages[{at}]")
                    for at, message in enumerate(self.messages)
                ),
                tools=clients_tools(self.tools or ()),
                template_kwargs=self.chat_template_kwargs or {},
                rendering=self.rendering(),
            )
            reading.refuse_long("messages", conversation.num_chars)
            check_media(conversation, dialect, "messages")
            return conversation
        param, source = ("prompt", self.prompt) if self.text is None else ("text", self.text)
        texts = (source,) if isinstance(source, str) else source or ()
        reading.refuse_long(param, sum(map(len, texts)))
        return texts

    def _padding(self) -> Padding | None:
        if not self.pad_to_max_length:
            return None
        if self.max_length is None:
            raise MissingParameter(
                "`max_length` is required with `pad_to_max_length`.", param="max_length"
            )
        # The answer has no more tokens than a prompt may.
        num_texts = len(self.text) if isinstance(self.text, tuple) else 1
        most = field_limits.PROMPT_IDS.value // num_texts
        if self.max_length > most:
            raise reading.refusal(
                "max_length",
                f"must be at most {most} to pad {num_texts} texts. Send fewer texts, or a "
                "smaller length",
            )
        return Padding(self.max_length, is_left=self.padding_side == "left")

    def _require_one_source(self) -> None:
        sources = {"prompt": self.prompt, "messages": self.messages, "text": self.text}
        given = [name for name, value in sources.items() if value is not None]
        if not given:
            raise MissingParameter(
                "`prompt` is required: or send `messages` or `text`.", param="prompt"
            )
        if len(given) > 1:
            raise reading.refusal(given[1], f"cannot go with `{given[0]}`: send one of them")


_Ids = Sequence[int]


class CountedTokens(Answer, kw_only=True):
    """The answer to a `prompt` or to `messages`."""

    count: int
    max_model_len: Annotated[int | None, Field(description="The model's context, in tokens.")]
    tokens: _Ids
    token_strs: Sequence[str] | None


class Tokens(Answer, kw_only=True):
    """The answer to a `text`, or to several."""

    tokens: _Ids | Sequence[_Ids]


class Detokenized(Answer, kw_only=True):
    prompt: str


@dataclass(frozen=True, slots=True)
class TokenizeExchange:
    request: TokenizeRequest
    text: str | tuple[str, ...] | None  # of OVMS
    unused: Unused

    def with_media(self, parts_of: PartsOf) -> "TokenizeExchange":
        return replace(self, request=self.request.with_media(parts_of))

    def body(self, tokenized: Tokenized) -> bytes:
        ids, strings = tokenized.token_ids, tokenized.token_strings
        if self.text is not None:
            return json_bytes(Tokens(tokens=ids[0] if isinstance(self.text, str) else ids))
        counted = CountedTokens(
            count=len(ids[0]),
            max_model_len=tokenized.max_context,
            tokens=ids[0],
            token_strs=None if strings is None else strings[0],
        )
        return json_bytes(counted)


def parse_tokenize(body: bytes, dialect: Dialect = V1) -> TokenizeExchange:
    """Read the body of `/tokenize`. Raises `InvalidRequest`."""
    wire, unused = read_body("tokenize", TokenizeBody, body)
    return TokenizeExchange(wire.request(dialect), wire.text, unused)


class DetokenizeBody(reading.Wire):
    """The parameters of vLLM."""

    model: reading.ModelName | None = reading.parameter(reading.MODEL)
    tokens: reading.PromptIds = reading.parameter("Token ids.", is_required=True)


def parse_detokenize(body: bytes) -> Body[DetokenizeBody]:
    """Read the body of `/detokenize`. Raises `InvalidRequest`."""
    return read_body("detokenize", DetokenizeBody, body)


def text_body(text: str) -> bytes:
    return json_bytes(Detokenized(prompt=text))
