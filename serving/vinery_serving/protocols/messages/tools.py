"""`tools` and `tool_choice` of a Messages request. Only the client runs tools."""

from collections.abc import Sequence
from typing import Annotated, ClassVar, Final, Literal

from pydantic import BeforeValidator, Field, model_validator

from vinery_serving.core import field_limits
from vinery_serving.core.errors import cited
from vinery_serving.core.request import Tool, ToolChoice, ToolMode
from vinery_serving.protocols.common.encoding import json_bytes
from vinery_serving.protocols.common.limited import (
    Args,
    Description,
    Identifier,
    JsonSchemaObject,
    Limited,
)
from vinery_serving.protocols.common.reading import Wire, missing, refusing, unsupported
from vinery_serving.protocols.common.tools import refuse_too_much, resolve_choice
from vinery_serving.protocols.messages.members import Reported

_DIRECT: Final = "direct"
Callers = Annotated[
    list[Identifier],
    Field(fail_fast=True, json_schema_extra={"contains": {"const": _DIRECT}}),
    Limited(field_limits.TOOLS),
]
Examples = Annotated[list[Args], Field(fail_fast=True), Limited(field_limits.TOOLS)]

_NAME_PATTERN: Final = r"^[A-Za-z0-9_.-]{1,128}$"
_MODES: Final = {"auto": ToolMode.AUTO, "any": ToolMode.REQUIRED, "none": ToolMode.NONE}
_FUNCTION: Final = (
    "is OpenAI's: send the function's `name` and `description`, and its parameters as "
    "`input_schema`"
)


def _custom(value: object) -> object:
    if value == "function":
        raise unsupported(_FUNCTION)
    if isinstance(value, str) and value != "custom":
        raise unsupported(
            f"is {cited(value[:64])}, a tool of Anthropic's, but this server has none: send a tool "
            "with `name`, `description` and `input_schema`"
        )
    return value


class ClientTool(Reported):
    """A tool that the client runs. The model gets every tool at once, and each part of its input
    is streamed when it is there."""

    harmless: ClassVar = Reported.harmless | {"defer_loading", "eager_input_streaming"}

    type: (
        Annotated[
            Literal["custom"], BeforeValidator(_custom, json_schema_input_type=Literal["custom"])
        ]
        | None
    ) = None
    name: Annotated[str, Field(pattern=_NAME_PATTERN)]
    description: Description | None = None
    input_schema: JsonSchemaObject
    strict: bool | None = None
    allowed_callers: Annotated[
        Callers | None,
        refusing(
            lambda value: isinstance(value, list) and _DIRECT not in value,
            "must have direct: this server runs no code that could call the tool",
            Callers | None,
        ),
    ] = None
    input_examples: Examples | None = None

    def to_core(self) -> Tool:
        return Tool(self.name, self._full_description, self.input_schema, self.strict)

    @property
    def _full_description(self) -> str | None:
        """The description, and the examples after it: every template has it."""
        if not self.input_examples:
            return self.description
        lines = (json_bytes(example).decode() for example in self.input_examples)
        examples = "\n".join(("Examples of its input:", *lines))
        return f"{self.description}\n\n{examples}" if self.description else examples


ClientTools = Annotated[list[ClientTool], Field(fail_fast=True), Limited(field_limits.TOOLS)]


class Choice(Wire):
    """`tool_choice`."""

    type: Literal["auto", "any", "tool", "none"]
    name: Identifier | None = None
    disable_parallel_tool_use: bool | None = None

    @model_validator(mode="after")
    def _names_its_tool(self) -> "Choice":
        if self.type == "tool" and self.name is None:
            raise missing("must have the `name` of a tool")
        return self

    def to_core(self) -> ToolChoice:
        if self.type == "tool":
            return ToolChoice(ToolMode.NAMED, self.name)
        return ToolChoice(_MODES[self.type])


def tools_of(sent: Sequence[ClientTool] | None) -> tuple[Tool, ...]:
    """Raises `InvalidRequest` for tools that are too many or too long together."""
    tools = tuple(tool.to_core() for tool in sent or ())
    refuse_too_much(tools)
    return tools


def choice_among(sent: Choice | None, tools: Sequence[Tool]) -> ToolChoice:
    """Raises `InvalidRequest` for a choice that `tools` contradicts."""
    return resolve_choice(None if sent is None else sent.to_core(), tools)
