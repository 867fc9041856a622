"""From the bytes of a request body to a validated wire model.

Every error is an `InvalidRequest`: `param` is the path of the field, such as
`messages[2].content`, and the message states in one sentence what to change.

`Limited(MESSAGES)` in an annotation checks the field before its type does, and adds the limit of
the table in `core/field_limits` to the JSON schema. Put it last: the last check of an annotation
runs first. The OpenAPI document and `docs/parameters.md` read `parameter(...)`.
`sent_parameters` is for usage records.
"""

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from itertools import islice
from types import UnionType
from typing import Annotated, Any, Final, Literal, TypeVar, Union, get_args, get_origin

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    ValidationError,
)
from pydantic.fields import FieldInfo
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import (
    CoreSchema,
    ErrorDetails,
    PydanticCustomError,
    PydanticUndefined,
    core_schema,
)

from vinery_serving.core import field_limits
from vinery_serving.core.errors import InvalidRequest, MissingParameter, UnsupportedParameter, cited
from vinery_serving.core.field_limits import JSON_LEVELS, Counted, FieldLimit
from vinery_serving.core.json_text import (
    MAX_NUMBER_DIGITS,
    NumberTooLarge,
    exceeded_limit,
    is_deeper_than,
    size_of,
)
from vinery_serving.core.request import ToolChoice
from vinery_serving.protocols.common.encoding import json_bytes

_SENTENCES: Mapping[str, str] = {
    "string_type": "must be a string",
    "int_type": "must be an integer",
    "float_type": "must be a number",
    "bool_type": "must be true or false",
    "list_type": "must be an array",
    "dict_type": "must be an object",
    "model_type": "must be an object",
    "model_attributes_type": "must be an object",
    "greater_than": "must be greater than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be at most {le}",
    "too_short": "must not be empty",
    "too_long": "must have at most {max_length} entries",
    "string_too_short": "must not be empty",
    "string_too_long": "must have at most {max_length} characters",
    "string_pattern_mismatch": "must match {pattern}",
    "literal_error": "must be {expected}",
    "none_required": "is not supported by this server: leave it out",
    "extra_forbidden": "is not a known field",
}
_TOO_DEEP = "it nests more than {} levels"


class Wire(BaseModel):
    """Base of all wire models. Values are not coerced, and unknown fields are ignored. Every
    optional field accepts null, which clients send for absent fields."""

    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)


WireT = TypeVar("WireT", bound=Wire)


def invalid(sentence: str) -> PydanticCustomError:
    """Return the error of a validator. The message is the field's name and `sentence`."""
    return PydanticCustomError("invalid", "{sentence}", {"sentence": sentence})


def missing(sentence: str) -> PydanticCustomError:
    """Return the error of a validator for a value that lacks a required part."""
    return PydanticCustomError("missing_part", "{sentence}", {"sentence": sentence})


def unsupported(sentence: str) -> PydanticCustomError:
    """Return the error of a validator for a valid value that this server does not support."""
    return PydanticCustomError("unsupported", "{sentence}", {"sentence": sentence})


def refusal(param: str, sentence: str) -> InvalidRequest:
    """Return the error of a field that contradicts or needs another, worded as by `invalid`."""
    return InvalidRequest(f"`{param}` {sentence}.", param=param)


def read_object(body: bytes) -> dict[str, Any]:
    """Return the JSON object in `body`. Raises `InvalidRequest` for any other body."""
    value = _parse_json(body)
    if not isinstance(value, dict):
        raise _malformed("it must be a JSON object")
    # Templates and JSON encoders recurse, so nesting has a limit. Real schemas nest 30 levels.
    num_opened = body.count(b"{") + body.count(b"[")
    if num_opened > JSON_LEVELS.value and is_deeper_than(JSON_LEVELS.value, value):
        raise _malformed(_TOO_DEEP.format(JSON_LEVELS.value))
    return value


def read_model(model: type[WireT], value: object) -> WireT:
    """Return `value` as `model`. Raises `InvalidRequest` for its first error."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise _error(error.errors(include_url=False)[0]) from None


def _parse_json(body: bytes) -> object:
    if not body.strip():
        raise _malformed("it is empty")
    if (exceeded := exceeded_limit(body)) is not None:
        raise _malformed(
            f"it has more than {exceeded.value} {exceeded.counted}. Send fewer, or ask the "
            f"administrator to raise {exceeded.setting}"
        )
    try:
        text = body.decode()
        value = _DECODER.decode(text)
        if "\\ud" in text or "\\uD" in text:
            json.dumps(value, ensure_ascii=False).encode()
    except UnicodeDecodeError:
        raise _malformed("it is not valid UTF-8") from None
    except UnicodeEncodeError:
        raise _malformed("a string holds half of a surrogate pair") from None
    except RecursionError:
        raise _malformed(_TOO_DEEP.format(JSON_LEVELS.value)) from None
    except json.JSONDecodeError as error:
        raise _malformed(f"it is not valid JSON ({error})") from None
    except ValueError:  # Python's limit on the digits of an integer
        raise _malformed("a number is too large") from None
    return value


def _object_of_unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise _malformed("an object has the same key twice")
    return members


def _refuse_constant(name: str) -> float:
    raise _malformed(f"{name} is not a JSON number")


def _finite_float(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise _malformed("a number is too large")
    return number


# `json.loads` would make one for each body.
_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_object_of_unique_keys,
    parse_constant=_refuse_constant,
    parse_float=_finite_float,
)


def _malformed(reason: str) -> InvalidRequest:
    return InvalidRequest(f"The request body cannot be read: {reason}.", code="invalid_json")


def _error(detail: ErrorDetails) -> InvalidRequest:
    param = _path(detail["loc"])
    if detail["type"] == "missing" or detail["input"] is None:  # null is the same as absent
        return MissingParameter(f"`{param}` is required.", param=param)
    match detail["type"]:
        case "missing_part":
            return MissingParameter(f"`{param}` {detail['msg']}.", param=param)
        case "unsupported" | "none_required":
            return UnsupportedParameter(f"`{param}` {_sentence(detail)}.", param=param)
        case _:
            return refusal(param, _sentence(detail))


def _sentence(detail: ErrorDetails) -> str:
    template = _SENTENCES.get(detail["type"])
    if template is None:
        is_own = detail["type"] in ("invalid", "unsupported")
        return detail["msg"] if is_own else cited(detail["msg"])
    return template.format(**{key: _plain(value) for key, value in detail.get("ctx", {}).items()})


def _plain(value: object) -> object:
    if value == "False":
        return "false"
    return f"{value:g}" if isinstance(value, float) else value


def _path(location: tuple[int | str, ...]) -> str:
    """Return `messages[2].content` for `("messages", 2, "<text>", "content")`. Tags of unions,
    which are in angle brackets here, and pydantic's mark of a key are not part of a path."""
    path = ""
    for step in location:
        if isinstance(step, int):
            path += f"[{step}]"
        elif not step.startswith("<") and step != "[key]":
            path += f".{step}" if path else step
    return path


def with_integers(model: type[BaseModel], members: dict[str, Any]) -> dict[str, Any]:
    """Return the members of a body, with the integers that the fields of `model` expect. `8.0` is
    an integer in JSON, and clients without integers send it. Inside of schemas, messages and
    arguments a value stays as it was sent."""
    names = _integers(model)
    others = {
        name: int(value)
        for name, value in members.items()
        if name in names and isinstance(value, float) and value.is_integer()
    }
    return {**members, **others} if others else members


@cache
def _integers(model: type[BaseModel]) -> frozenset[str]:
    """The fields that hold one integer, by the name that clients send."""
    kinds = {
        field.alias or name: types_of(field.annotation)
        for name, field in model.model_fields.items()
    }
    others = {float, str}
    return frozenset(name for name, types in kinds.items() if int in types and not types & others)


def types_of(annotation: Any) -> set[Any]:
    """The types of a union, without their annotations."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return types_of(get_args(annotation)[0])
    if origin in (Union, UnionType):
        return set().union(*map(types_of, get_args(annotation)))
    return {annotation}


# -- Fields of parameters

# The types of values with a limit, and its keyword in a schema of a type.
_FORMS: Final[Mapping[Counted, tuple[tuple[type, ...], str, str]]] = {
    Counted.ENTRIES: ((list, tuple), "array", "maxItems"),
    Counted.MEMBERS: ((dict,), "object", "maxProperties"),
    Counted.CHARACTERS: ((str,), "string", "maxLength"),
    Counted.NUMBER: ((), "integer", "maximum"),
}
# The members of `JsonSize`.
_SIZES: Final = {
    Counted.CHARACTERS: "num_chars",
    Counted.VALUES: "num_values",
    Counted.PROPERTIES: "num_properties",
    Counted.ENUM_VALUES: "num_enum_values",
}


@dataclass(frozen=True, slots=True)
class Limited:
    """A limit on a text, an array, an object or a number, checked before the type. Values of other
    types pass."""

    limit: FieldLimit

    def check(self, value: Any) -> Any:
        """Return `value`. Raises the error of a validator if it is above the limit."""
        limit, kind = self.limit, type(value)
        size = len(value) if kind in _FORMS[limit.counted][0] else 0
        if kind is int and limit.counted is Counted.NUMBER:
            size = value
        if size > limit.value:
            raise invalid(limit.sentence(size))
        return value

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.no_info_before_validator_function(self.check, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        found = handler(schema)
        _, kind, keyword = _FORMS[self.limit.counted]
        for option in found.get("anyOf", [found]):
            if option.get("type") == kind:
                option[keyword] = self.limit.value
        return found


def check_json(limits: Iterable[FieldLimit], value: Any) -> Any:
    """Return a JSON value. Raises the error of a validator if what it has at any depth is above a
    limit."""
    if not isinstance(value, (dict, list)):
        return value
    try:
        size = size_of(value)
    except NumberTooLarge:
        raise invalid(f"must not have an integer of more than {MAX_NUMBER_DIGITS} digits") from None
    for limit in limits:
        found = getattr(size, _SIZES[limit.counted])
        if found > limit.value:
            raise invalid(limit.sentence(found))
    return value


def limited_json(*limits: FieldLimit) -> BeforeValidator:
    return BeforeValidator(partial(check_json, limits))


def refuse_long(param: str, num_chars: int) -> None:
    """Raises `InvalidRequest` for a prompt whose texts are too long together."""
    if num_chars > field_limits.TEXT.value:
        raise refusal(param, field_limits.TEXT.sentence(num_chars))


SCHEMA_LIMITS: Final = (
    field_limits.SCHEMA_PROPERTIES,
    field_limits.SCHEMA_ENUM_VALUES,
    field_limits.SCHEMA_VALUES,
    field_limits.SCHEMA_CHARS,
)

TEXT_LIMIT: Final = Limited(field_limits.TEXT)
Text = Annotated[str, TEXT_LIMIT]
Identifier = Annotated[str, Limited(field_limits.IDENTIFIER)]
Description = Annotated[str, Limited(field_limits.DESCRIPTION)]
JsonSchemaObject = Annotated[dict[str, Any], limited_json(*SCHEMA_LIMITS)]
Args = Annotated[
    dict[str, Any],
    limited_json(field_limits.ARGS_VALUES, field_limits.ARGS_CHARS),
    Limited(field_limits.ARGS_MEMBERS),
]
# Any object. Its JSON text counts among the characters of the prompt.
AnyObject = Annotated[dict[str, Any], limited_json(field_limits.TEXT)]

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
