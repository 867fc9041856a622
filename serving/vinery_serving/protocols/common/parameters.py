"""The limit and the description of a request parameter, beside the type of its field.

`Limited(MESSAGES)` in an annotation checks the field before its type does, and adds the limit of
the table in `core/field_limits` to the JSON schema. Put it last: the last check of an annotation
runs first. The OpenAPI document and `docs/parameters.md` read `parameter(...)`.
`sent_parameters` is for usage records.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import islice
from typing import Annotated, Any, Final, Literal, get_args, get_origin

from pydantic import AfterValidator, BaseModel, Field, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.fields import FieldInfo
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticUndefined, core_schema

from vinery_serving.core import field_limits
from vinery_serving.core.field_limits import Counted, FieldLimit
from vinery_serving.core.json_text import MAX_NUMBER_DIGITS, NumberTooLarge, size_of
from vinery_serving.core.request import ToolChoice
from vinery_serving.protocols.common.encoding import json_bytes
from vinery_serving.protocols.common.reading import invalid, refusal, types_of

_KEYWORDS: Final = {
    Counted.ENTRIES: ("array", "maxItems"),
    Counted.MEMBERS: ("object", "maxProperties"),
    Counted.CHARACTERS: ("string", "maxLength"),
    Counted.NUMBER: ("integer", "maximum"),
}
# The members of `JsonSize`.
_SIZES: Final = {
    Counted.CHARACTERS: "num_chars",
    Counted.VALUES: "num_values",
    Counted.PROPERTIES: "num_properties",
    Counted.ENUM_VALUES: "num_enum_values",
}
_TYPES: Final[Mapping[Counted, tuple[type, ...]]] = {
    Counted.ENTRIES: (list, tuple),
    Counted.MEMBERS: (dict,),
    Counted.CHARACTERS: (str,),
}


class _Check(ABC):
    """An annotation that checks a value before its type does."""

    __slots__ = ()

    @abstractmethod
    def check(self, value: Any) -> Any:
        """Return `value`. Raises the error of a validator if it is above a limit."""

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.no_info_before_validator_function(self.check, handler(source))


@dataclass(frozen=True, slots=True)
class Limited(_Check):
    """A limit on a text, an array, an object or a number. Values of other types pass."""

    limit: FieldLimit

    def check(self, value: Any) -> Any:
        limit, kind = self.limit, type(value)
        if kind is int:
            size = value if limit.counted is Counted.NUMBER else 0
        else:
            size = len(value) if kind in _TYPES.get(limit.counted, ()) else 0
        if size > limit.value:
            raise invalid(limit.sentence(size))
        return value

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        found = handler(schema)
        kind, keyword = _KEYWORDS[self.limit.counted]
        for option in found.get("anyOf", [found]):
            if option.get("type") == kind:
                option[keyword] = self.limit.value
        return found


@dataclass(frozen=True, slots=True)
class LimitedJson(_Check):
    """Limits on the contents of any JSON value, at any depth."""

    limits: tuple[FieldLimit, ...]

    def check(self, value: Any) -> Any:
        if not isinstance(value, (dict, list)):
            return value
        try:
            size = size_of(value)
        except NumberTooLarge:
            raise invalid(
                f"must not have an integer of more than {MAX_NUMBER_DIGITS} digits"
            ) from None
        for limit in self.limits:
            found = getattr(size, _SIZES[limit.counted])
            if found > limit.value:
                raise invalid(limit.sentence(found))
        return value


def refuse_long(param: str, num_chars: int) -> None:
    """Raises `InvalidRequest` for a prompt whose texts are too long together."""
    if num_chars > field_limits.TEXT.value:
        raise refusal(param, field_limits.TEXT.sentence(num_chars))


SCHEMA_LIMITS: Final = LimitedJson(
    (
        field_limits.SCHEMA_PROPERTIES,
        field_limits.SCHEMA_ENUM_VALUES,
        field_limits.SCHEMA_VALUES,
        field_limits.SCHEMA_CHARS,
    )
)

TEXT_LIMIT: Final = Limited(field_limits.TEXT)
Text = Annotated[str, TEXT_LIMIT]
Identifier = Annotated[str, Limited(field_limits.IDENTIFIER)]
Description = Annotated[str, Limited(field_limits.DESCRIPTION)]
JsonSchemaObject = Annotated[dict[str, Any], SCHEMA_LIMITS]
Args = Annotated[
    dict[str, Any],
    LimitedJson((field_limits.ARGS_VALUES, field_limits.ARGS_CHARS)),
    Limited(field_limits.ARGS_MEMBERS),
]
# Any object. Its JSON text counts among the characters of the prompt.
AnyObject = Annotated[dict[str, Any], LimitedJson((field_limits.TEXT,))]

# Types of several parameters. OpenAI's description and OVMS's source set the limits.
ModelName = Annotated[str, Limited(field_limits.MODEL_NAME)]
MODEL: Final = (
    "A served model or an alias. If it is absent, the alias `default` answers, or else the only "
    "model for the endpoint that is loaded."
)
MAX_TOKEN_ID: Final = 2**31 - 1  # engines take int32
TokenId = Annotated[int, Field(ge=0, le=MAX_TOKEN_ID)]
TokenIds = Annotated[list[TokenId], Field(fail_fast=True)]
PromptIds = Annotated[TokenIds, Limited(field_limits.PROMPT_IDS)]
NO_LIMIT: Final = -1  # No limit of output tokens, as clients of LM Studio and of llama.cpp send it


def _not_zero(value: int) -> int:
    if value == 0:
        raise invalid("must be at least 1, or -1 for no limit")
    return value


MaxTokens = Annotated[
    int,
    Field(ge=NO_LIMIT, le=2**32 - 1, json_schema_extra={"not": {"const": 0}}),
    AfterValidator(_not_zero),
]
TopLogprobs = Annotated[int, Field(ge=0, le=20)]
Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
EFFORT = (
    "How much to reason, in the template's own words. For a template without efforts, a budget of "
    "reasoning tokens."
)


@dataclass(frozen=True, slots=True)
class Parameter:
    """Marks the field of a parameter. `changes_nothing`: it has no effect on the generated text."""

    changes_nothing: bool


def parameter(
    description: str,
    *,
    changes_nothing: bool = False,
    alias: str | None = None,
    default: Any = None,
    is_required: bool = False,
) -> Any:
    """Return the pydantic field of a request parameter."""
    if is_required:
        default = PydanticUndefined
    field: FieldInfo = Field(default=default, alias=alias, description=description)
    field.metadata.append(Parameter(changes_nothing))
    return field


def parameter_of(field: FieldInfo) -> Parameter | None:
    """Return the mark of a field that `parameter` made. None for other fields."""
    return next((each for each in field.metadata if isinstance(each, Parameter)), None)


# -- The parameters that a client sent

_MOST_SENT: Final = 32  # More would make a long line in the journal
# The record names the model, and the client does not send the tag itself.
_NOT_SENT: Final = frozenset(("model", "tag"))


def sent_parameters(body: BaseModel) -> str:
    """Return the parameters of a body as a JSON object, or an empty text. It has no text of the
    client: only numbers, booleans and words of the protocol, for a list the number of entries, and
    for other values `…`."""
    sent = dict(islice(_sent(body, ""), _MOST_SENT))
    return json_bytes(sent).decode() if sent else ""


def _sent(body: BaseModel, path: str) -> Iterator[tuple[str, object]]:
    known = _words(type(body))
    for name in sorted(body.model_fields_set):
        if name not in known:
            continue
        value, (sent_as, words) = getattr(body, name), known[name]
        match value:
            case None:
                pass
            case bool() | int() | float():
                yield path + sent_as, value
            case str():
                yield path + sent_as, value if words is None or value in words else "…"
            case list() | tuple():
                yield path + sent_as, len(value)
            case ToolChoice(mode=mode):
                yield path + sent_as, mode
            case BaseModel():
                yield from _sent(value, f"{path}{sent_as}.")
            case _:
                yield path + sent_as, "…"


@cache
def _words(model: type[BaseModel]) -> Mapping[str, tuple[str, frozenset[str] | None]]:
    """The client's name of each field, and the words that its values may be. None: the field is a
    `type`, whose values are all checked."""
    return {
        name: (field.alias or name, None if name == "type" else _literals(field.annotation))
        for name, field in model.model_fields.items()
        if name not in _NOT_SENT
    }


def _literals(annotation: Any) -> frozenset[str]:
    choices = (each for each in types_of(annotation) if get_origin(each) is Literal)
    return frozenset(word for each in choices for word in get_args(each))
