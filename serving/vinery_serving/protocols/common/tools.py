"""`tools` and `tool_choice`: the nested form of chats, the flat form of Responses, and the
deprecated `functions`. Every endpoint reads every form."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Annotated, Any, Final, Literal

from pydantic import Discriminator, Field, PlainValidator, Tag

from vinery_serving.core import field_limits
from vinery_serving.core.request import TextGrammar, TextSyntax, Tool, ToolChoice, ToolMode
from vinery_serving.core.tools import ToolIndex, custom_tool, namespace_tools
from vinery_serving.protocols.common import reading

# The descriptions of parameters that chats and Responses have.
TOOLS: Final = (
    "Functions and custom tools, in the nested form of chats or the flat form of Responses. The "
    "input of a custom tool is constrained to its `format`, a regular expression or a Lark "
    "grammar. In Responses a `namespace` may group tools; the description of the first tool "
    "includes the description of the namespace. Responses leave out the tools that OpenAI hosts, "
    "chats refuse them."
)
TOOL_CHOICE: Final = (
    "`none`, `auto`, `required`, a function or custom tool, or `allowed_tools`. A grammar "
    "enforces required calls in every output format."
)
PARALLEL_CALLS: Final = "False allows one call."

# OpenAI's characters, and the dot that tool servers use in names.
NAME_PATTERN = r"^[A-Za-z0-9_.-]{1,128}$"


class WireFunction(reading.Wire):
    """A function that the model may call."""

    name: Annotated[str, Field(pattern=NAME_PATTERN)]
    description: reading.Description | None = None
    parameters: reading.JsonSchemaObject | None = None
    input_schema: None = None  # Anthropic's name of `parameters`
    strict: bool | None = None

    def to_core(self, path: str) -> Tool:
        return Tool(self.name, self.description, self.parameters, self.strict)


class NestedTool(reading.Wire):
    """`{"type": "function", "function": {...}}`."""

    function: WireFunction

    def to_core(self, path: str) -> Tool:
        return self.function.to_core(path)


class HostedTool(reading.Wire):
    """A tool that OpenAI runs itself, such as `web_search`."""

    type: reading.Identifier


class GrammarDefinition(reading.Wire):
    """A grammar and its language. In Responses it is the format, with the type `grammar`."""

    syntax: Literal["lark", "regex"]
    definition: Annotated[str, reading.Limited(field_limits.LARK)]

    def to_core(self, path: str) -> TextGrammar:
        return TextGrammar(TextSyntax(self.syntax), self.definition, f"{path}.definition")


class FreeText(reading.Wire):
    """`{"type": "text"}`: any text. Grammars have their own classes."""

    type: Literal["text", "grammar"]

    def to_core(self, path: str) -> None:
        return None


class NestedGrammar(reading.Wire):
    """`{"type": "grammar", "grammar": {...}}`, the form of chats."""

    grammar: GrammarDefinition

    def to_core(self, path: str) -> TextGrammar:
        return self.grammar.to_core(f"{path}.grammar")


def _format_tag(value: Any) -> str:
    match value:
        case {"type": "grammar", "grammar": _}:
            return "<nested type=grammar>"
        case {"type": "grammar"}:
            return "<flat type=grammar>"
        case _:
            return "<type=text>"


InputFormat = Annotated[
    Annotated[FreeText, Tag("<type=text>")]
    | Annotated[NestedGrammar, Tag("<nested type=grammar>")]
    | Annotated[GrammarDefinition, Tag("<flat type=grammar>")],
    Discriminator(_format_tag),
]


class CustomTool(reading.Wire):
    """A tool whose input is a text, in the flat form."""

    name: Annotated[str, Field(pattern=NAME_PATTERN)]
    description: reading.Description | None = None
    format: InputFormat | None = None

    def to_core(self, path: str) -> Tool:
        grammar = None if self.format is None else self.format.to_core(f"{path}.format")
        return custom_tool(self.name, self.description, grammar)


class NestedCustomTool(reading.Wire):
    """`{"type": "custom", "custom": {...}}`."""

    custom: CustomTool

    def to_core(self, path: str) -> Tool:
        return self.custom.to_core(f"{path}.custom")


def _member_tag(value: Any) -> str:
    match value:
        case {"type": "custom", "custom": _}:
            return "<nested type=custom>"
        case {"type": "custom"}:
            return "<flat type=custom>"
        case {"type": str(kind)} if kind != "function":
            return "<hosted>"
        case {"function": _}:
            return "<nested>"
        case {"name": _}:
            return "<flat>"
        case _:
            return "<nested>"


NamespaceMember = Annotated[
    Annotated[NestedTool, Tag("<nested>")]
    | Annotated[WireFunction, Tag("<flat>")]
    | Annotated[NestedCustomTool, Tag("<nested type=custom>")]
    | Annotated[CustomTool, Tag("<flat type=custom>")]
    | Annotated[HostedTool, Tag("<hosted>")],
    Discriminator(_member_tag),
]
NamespaceMembers = Annotated[
    list[NamespaceMember], Field(fail_fast=True), reading.Limited(field_limits.TOOLS)
]

CallableTool = NestedTool | WireFunction | NestedCustomTool | CustomTool


class NamespaceTool(reading.Wire):
    """A group of tools. Their calls have the namespace and the tool's name."""

    name: Annotated[str, Field(pattern=NAME_PATTERN)]
    description: reading.Description | None = None
    tools: NamespaceMembers

    def members(self, path: str) -> tuple[Tool, ...]:
        return tuple(
            tool.to_core(f"{path}.tools[{at}]")
            for at, tool in enumerate(self.tools)
            if not isinstance(tool, HostedTool)
        )


def _tool_tag(value: Any) -> str:
    is_namespace = isinstance(value, dict) and value.get("type") == "namespace"
    return "<type=namespace>" if is_namespace else "<member>"


WireTool = Annotated[
    Annotated[NamespaceTool, Tag("<type=namespace>")] | Annotated[NamespaceMember, Tag("<member>")],
    Discriminator(_tool_tag),
]
WireTools = Annotated[list[WireTool], Field(fail_fast=True), reading.Limited(field_limits.TOOLS)]
WireFunctions = Annotated[
    list[WireFunction], Field(fail_fast=True), reading.Limited(field_limits.TOOLS)
]


def clients_tools(tools: Sequence[WireTool]) -> tuple[Tool, ...]:
    """Return the tools that the client runs. Hosted tools are left out: this server runs none,
    and agents list them without need. Raises `InvalidRequest` for too many."""
    kept: list[Tool] = []
    for at, tool in enumerate(tools):
        path = f"tools[{at}]"
        if isinstance(tool, NamespaceTool):
            kept += namespace_tools(tool.name, tool.description, tool.members(path))
        elif not isinstance(tool, HostedTool):
            kept.append(tool.to_core(path))
    refuse_too_much(kept)
    return tuple(kept)


def hosted_kinds(tools: Iterable[WireTool]) -> Iterator[str]:
    """Yield the types of the tools that OpenAI runs, also inside of namespaces."""
    for tool in tools:
        if isinstance(tool, NamespaceTool):
            yield from hosted_kinds(tool.tools)
        elif isinstance(tool, HostedTool):
            yield tool.type


def refuse_too_much(tools: Sequence[Tool]) -> None:
    """Raises `InvalidRequest` for tools that are too many or too long together."""
    for limit, size in (
        (field_limits.FUNCTIONS, len(tools)),
        (field_limits.TOOLS_CHARS, sum(tool.num_chars for tool in tools)),
    ):
        if size > limit.value:
            raise reading.refusal("tools", limit.sentence(size))


def refuse_hosted(tools: Sequence[WireTool]) -> None:
    """Raises `InvalidRequest` for the first tool that an answer to a chat cannot call."""
    for at, tool in enumerate(tools):
        if isinstance(tool, HostedTool | NamespaceTool):
            raise reading.refusal(f"tools[{at}].type", "must be function or custom")


def _read_choice(value: Any) -> ToolChoice | None:
    match value:
        case None:
            return None
        case "none" | "auto" | "required" as mode:
            return ToolChoice(ToolMode(mode))
        case {"type": "allowed_tools", "allowed_tools": Mapping() as inner}:
            return _allowed(inner, "allowed_tools.")
        case {"type": "allowed_tools"}:
            return _allowed(value, "")
    name = _named(value)
    if name is None:
        raise reading.invalid("must be none, auto, required or an object that names a tool")
    return ToolChoice(ToolMode.NAMED, name)


def _named(value: object) -> str | None:
    """Return the tool name in a nested or flat object. None: the object names no tool."""
    match value:
        case {"function": {"name": str(name)}} | {"type": "custom", "custom": {"name": str(name)}}:
            return name
        case {"type": "function" | "custom", "name": str(name)}:
            return name
        case {"name": str(name), **rest} if "type" not in rest:
            return name
    return None


def _allowed(members: Mapping[str, Any], path: str) -> ToolChoice:
    """Read `allowed_tools`, in the nested form of chats or the flat form of Responses."""
    mode, tools = members.get("mode"), members.get("tools")
    if mode not in ("auto", "required"):
        raise reading.invalid(f"must have a `{path}mode` that is auto or required")
    if not isinstance(tools, list) or not tools:
        raise reading.invalid(f"must have `{path}tools`, an array that names at least one tool")
    reading.Limited(field_limits.ALLOWED_TOOLS).check(tools)
    named = [_allowed_name(tool, f"{path}tools[{at}]") for at, tool in enumerate(tools)]
    names = tuple(name for name in dict.fromkeys(named) if name is not None)
    if names:
        return ToolChoice(ToolMode(str(mode)), allowed=names)
    if mode == "required":
        raise reading.invalid(f"must name at least one function or custom tool in `{path}tools`")
    return ToolChoice(ToolMode.NONE)


def _allowed_name(tool: object, path: str) -> str | None:
    """Return None for a hosted tool, which is also left out of `tools`."""
    name = _named(tool)
    if name is not None:
        return name
    match tool:
        case {"type": "namespace", "name": str(name)}:
            return name
        case {"type": str(kind)} if kind not in ("function", "custom"):
            return None
    raise reading.invalid(f"must name a tool in `{path}`")


# Also reads the deprecated `function_call`, whose object is `{"name": ...}`.
WireToolChoice = Annotated[
    ToolChoice | None,
    PlainValidator(
        _read_choice,
        json_schema_input_type=Literal["none", "auto", "required"] | dict[str, Any] | None,
    ),
]


def resolve_choice(choice: ToolChoice | None, tools: Sequence[Tool]) -> ToolChoice:
    """Return `choice` with qualified tool names, or the default. Raises `InvalidRequest` if it
    names a tool that is not in `tools`."""
    match choice:
        case None:
            return ToolChoice()
        case ToolChoice(mode=ToolMode.REQUIRED) if not tools:
            raise reading.refusal(
                "tool_choice",
                "asks for a tool call, but `tools` has no tool that the model can call",
            )
        case ToolChoice(mode=ToolMode.NAMED, name=str(name)):
            matches = set(ToolIndex(tools).find(name))
            if len(matches) != 1:
                raise reading.refusal("tool_choice", "names a tool that is not in `tools`")
            return ToolChoice(ToolMode.NAMED, matches.pop())
        case ToolChoice(mode=mode, allowed=tuple(names)):
            index = ToolIndex(tools)
            each = [index.find(name) for name in names]
            if not all(each):
                raise reading.refusal("tool_choice", "allows a tool that is not in `tools`")
            return ToolChoice(mode, allowed=tuple(dict.fromkeys(chain(*each))))
    return choice


def echoed_choice(choice: ToolChoice, tools: Sequence[Tool]) -> object:
    """Return the choice among `tools` in the flat form of Responses."""
    kinds = {tool.namespace: "namespace" for tool in tools if tool.namespace}
    kinds |= {tool.name: "custom" for tool in tools if tool.is_custom}
    kinds |= {tool.own_name: "custom" for tool in tools if tool.is_custom and tool.own_name}

    def named(name: str) -> Mapping[str, str]:
        return {"type": kinds.get(name, "function"), "name": name}

    if choice.name is not None:
        return named(choice.name)
    if choice.allowed is None:
        return choice.mode.value
    allowed = [named(name) for name in choice.allowed]
    return {"type": "allowed_tools", "mode": choice.mode.value, "tools": allowed}
