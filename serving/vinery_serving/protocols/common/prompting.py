"""Prompts and their parameters: texts, token ids, the chat template, special tokens, truncation."""

from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from vinery_serving.core import field_limits
from vinery_serving.core.request import ALL_THAT_FIT, Effort, Encoding, Rendering
from vinery_serving.protocols.common.parameters import (
    MAX_TOKEN_ID,
    AnyObject,
    Args,
    Limited,
    TokenId,
    parameter,
)
from vinery_serving.protocols.common.reading import Wire, invalid, refusal

# The variables that the renderer sets itself.
_RESERVED_KWARGS = frozenset(
    (
        "add_generation_prompt", "bos_token", "chat_template", "cls_token",
        "continue_final_message", "conversation", "eos_token", "mask_token", "max_length",
        "messages", "pad_token", "padding", "return_assistant_tokens_mask", "return_dict",
        "return_tensors", "sep_token", "tokenize", "tokenizer_kwargs", "tools", "truncation",
        "unk_token",
    )
)  # fmt: skip


def _without_reserved_names(value: object) -> object:
    for name in value if isinstance(value, dict) else ():
        if name in _RESERVED_KWARGS:
            raise invalid(f"must not set `{name}`: the server sets it itself")
    return value


def _not_zero(value: int) -> int:
    if value == 0:
        raise invalid("must be at least 1, or -1 for as many tokens as fit into the context")
    return value


TemplateKwargs = Annotated[
    Args, BeforeValidator(_without_reserved_names, json_schema_input_type=Args)
]
Documents = Annotated[list[AnyObject], Field(fail_fast=True), Limited(field_limits.DOCUMENTS)]
Template = Annotated[str, Field(min_length=1), Limited(field_limits.TEMPLATE)]
TruncateTo = Annotated[
    int,
    Field(ge=-1, le=2**31 - 1, json_schema_extra={"not": {"const": 0}}),
    AfterValidator(_not_zero),
]

Prompt = str | tuple[int, ...]
_PROMPTS = Limited(field_limits.PROMPTS)
_PROMPT_IDS = Limited(field_limits.PROMPT_IDS)
ManyTexts = Annotated[list[str], Field(min_length=1), _PROMPTS]
Ids = Annotated[list[TokenId], Field(min_length=1), _PROMPT_IDS]
ManyIds = Annotated[list[Ids], Field(min_length=1), _PROMPTS]


def read_prompts(value: object) -> tuple[Prompt, ...]:
    """Read a text, several texts, token ids, or several lists of token ids."""
    if isinstance(value, str):
        return (value,)
    if not isinstance(value, list):
        raise invalid("must be a string, an array of strings, or one or more arrays of token ids")
    if not value:
        raise invalid("must not be empty")
    if all(isinstance(entry, str) for entry in value):
        _PROMPTS.check(value)
        return tuple(value)
    if all(isinstance(entry, list) for entry in value):
        _PROMPTS.check(value)
        return tuple(_token_ids(entry) for entry in value)
    return (_token_ids(value),)


def _token_ids(value: list[object]) -> tuple[int, ...]:
    if not value:
        raise invalid("must not have an empty array of token ids")
    _PROMPT_IDS.check(value)
    ids = tuple(entry for entry in value if type(entry) is int and 0 <= entry <= MAX_TOKEN_ID)
    if len(ids) != len(value):
        raise invalid("must have only strings or only token ids: integers from 0")
    return ids


def read_texts(value: object) -> tuple[str, ...]:
    if isinstance(value, str):
        return (value,)
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise invalid("must be a string or an array of strings")
    if not value:
        raise invalid("must not be empty")
    _PROMPTS.check(value)
    return tuple(value)


class TemplateFields(Wire):
    """The fields of `Rendering`, for chats, Responses and `/tokenize`. Whether the template
    uses a variable is known only to the process that has the model."""

    chat_template: Template | None = parameter(
        "A template that replaces the model's, for models with `trust_request_chat_template`. "
        "A sandbox limits time and memory."
    )
    chat_template_kwargs: TemplateKwargs | None = parameter(
        "Variables for the template. A variable that the server sets is refused."
    )
    disable_chat_template: bool | None = parameter(
        "The prompt is the text of the messages, without a template."
    )
    add_generation_prompt: bool | None = parameter(
        "Whether the prompt ends with the start of an answer. Default: true."
    )
    continue_final_message: bool | None = parameter("The answer continues the last message.")
    documents: Documents | None = parameter(
        "Documents for the template; refused if the template uses none."
    )

    def rendering(self, effort: str | None = None) -> Rendering:
        """Return how messages become text. Raises `InvalidRequest` for contradicting fields."""
        continues = self.continues_final_message
        self._refuse_contradictions(continues=continues)
        return Rendering(
            template=self.chat_template,
            uses_template=not self.disable_chat_template,
            documents=tuple(self.documents or ()),
            effort=None if effort is None else Effort(effort),
            adds_generation_prompt=not continues and self.add_generation_prompt is not False,
            continues_final_message=continues,
        )

    @property
    def continues_final_message(self) -> bool:
        """Whether the prompt ends inside the last message."""
        return bool(self.continue_final_message)

    def _refuse_contradictions(self, *, continues: bool) -> None:
        if continues and self.add_generation_prompt:
            raise refusal(
                "continue_final_message",
                "and `add_generation_prompt` exclude each other: a prompt ends inside the last "
                "message or starts a new one",
            )
        if not self.disable_chat_template:
            return
        needing = {
            "chat_template": self.chat_template,
            "continue_final_message": continues,
            "documents": self.documents,
        }
        for name, value in needing.items():
            if value:
                raise refusal(name, "needs a chat template, but `disable_chat_template` is true")


class EncodingFields(Wire):
    add_special_tokens: bool | None = parameter(
        "Whether the tokenizer adds tokens such as BOS. Default: only for raw prompts, because "
        "chat templates write their own."
    )
    truncate_prompt_tokens: TruncateTo | None = parameter(
        "Keeps this many tokens of the prompt; -1: as many as fit into the context with the answer."
    )
    truncation_side: Literal["left", "right"] | None = parameter(
        "The side of the prompt that truncation removes. Default: `left`."
    )
    return_prompt_text: bool | None = parameter(
        "Returns the text of the prompt that the model read."
    )

    def encoding(self) -> Encoding:
        limit = self.truncate_prompt_tokens
        return Encoding(
            adds_special_tokens=self.add_special_tokens,
            max_tokens=ALL_THAT_FIT if limit == -1 else limit,
            keeps_start=self.truncation_side == "right",
        )
