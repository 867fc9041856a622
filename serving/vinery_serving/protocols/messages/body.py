"""The body of a Messages request: Anthropic's parameters, and the parameters of every endpoint.

Only the client runs tools.
"""

from dataclasses import replace
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field, model_validator

from vinery_serving.core import field_limits
from vinery_serving.core import request as core
from vinery_serving.core.dialects import Dialect
from vinery_serving.core.field_limits import FieldLimit
from vinery_serving.protocols.common.decoding import Stop
from vinery_serving.protocols.common.encoding import json_bytes
from vinery_serving.protocols.common.formats import schema_grammar
from vinery_serving.protocols.common.generation import AnyMetadata, GenerationBody, TemplateFields
from vinery_serving.protocols.common.reading import (
    EFFORT,
    Args,
    Description,
    Identifier,
    JsonSchemaObject,
    Limited,
    Wire,
    missing,
    parameter,
    unsupported,
)
from vinery_serving.protocols.common.tools import NAME_PATTERN, refuse_too_much, resolve_choice
from vinery_serving.protocols.messages.blocks import TextBlocks, Turns, messages_of, system_messages

_DIRECT: Final = "direct"


def _has_direct(value: list[str]) -> list[str]:
    if _DIRECT not in value:
        raise unsupported("must have direct: this server runs no code that could call the tool")
    return value


Callers = Annotated[
    list[Identifier],
    Field(fail_fast=True, json_schema_extra={"contains": {"const": _DIRECT}}),
    AfterValidator(_has_direct),
    Limited(field_limits.TOOLS),
]
Examples = Annotated[list[Args], Field(fail_fast=True), Limited(field_limits.TOOLS)]
_MODES: Final = {
    "auto": core.ToolMode.AUTO,
    "any": core.ToolMode.REQUIRED,
    "none": core.ToolMode.NONE,
}


class ClientTool(Wire):
    """A tool that the client runs. The prompt has every tool, and the input of a call is streamed
    during generation."""

    type: Literal["custom"] | None = None
    name: Annotated[str, Field(pattern=NAME_PATTERN)]
    description: Description | None = None
    input_schema: JsonSchemaObject
    strict: bool | None = None
    allowed_callers: Callers | None = None
    input_examples: Examples | None = None

    def to_core(self) -> core.Tool:
        return core.Tool(self.name, self._full_description, self.input_schema, self.strict)

    @property
    def _full_description(self) -> str | None:
        """The description, then the examples: every template shows the description."""
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

    def to_core(self) -> core.ToolChoice:
        if self.type == "tool":
            return core.ToolChoice(core.ToolMode.NAMED, self.name)
        return core.ToolChoice(_MODES[self.type])


class Thinking(Wire):
    """`thinking`."""

    type: Literal["enabled", "adaptive", "disabled"] = parameter(
        "`enabled` and `adaptive` let the model reason with the effort of `output_config`, or "
        "`high`; `disabled` is the effort `none`.",
        is_required=True,
    )
    budget_tokens: Annotated[int, Field(ge=1, le=2**32 - 1)] | None = parameter(
        "Ends the reasoning after this many tokens. For models that end their reasoning with one "
        "token."
    )
    display: Literal["summarized", "omitted"] | None = parameter(
        "`omitted` leaves the reasoning out of the answer. Otherwise the answer has all of it."
    )


class JsonFormat(Wire):
    """`output_config.format`."""

    type: Literal["json_schema"] = parameter("`json_schema`.", is_required=True)
    schema_: JsonSchemaObject = parameter(
        "The keys of the answer follow the order of the schema's keys.",
        alias="schema",
        is_required=True,
    )

    def grammar(self, path: str) -> core.Grammar:
        """Return the constraint on the answer; `path` is the path of the format."""
        return schema_grammar(self.schema_, f"{path}.schema", is_strict=False)


class OutputConfig(Wire):
    """`output_config`."""

    effort: core.Effort | None = parameter(EFFORT)
    format: JsonFormat | None = parameter("A JSON schema that the answer fits.")
    task_budget: None = parameter("Refused: models of this server do not know budgets of tasks.")


class Edit(Wire):
    """A change of the conversation that keeps everything. The server makes no other."""

    type: Literal["clear_thinking_20251015"]
    keep: Literal["all"]


class ContextEdits(Wire):
    """`context_management`."""

    edits: Annotated[list[Edit], Field(fail_fast=True, max_length=20)] | None = None


class MessagesBody(TemplateFields, GenerationBody):
    """The parameters of Messages."""

    max_tokens: Annotated[int, Field(ge=1, le=2**32 - 1)] = parameter(
        "The limit of output tokens.", is_required=True
    )
    messages: Turns = parameter(
        "The turns of the conversation. Consecutive turns of one role are one. If the last turn is "
        "the assistant's, the answer continues it.",
        is_required=True,
    )
    system: TextBlocks | None = parameter("A system message: a text, or blocks of text.")
    stop: Stop | None = parameter(
        "At most 16 stop strings. A stop string may begin and end inside of tokens.",
        alias="stop_sequences",
    )
    tools: ClientTools | None = parameter("Tools that the client runs; Anthropic's are refused.")
    tool_choice: Choice | None = parameter(
        "`auto`, `any`, `none`, or a `tool` with its `name`. A grammar enforces required calls in "
        "every output format. `disable_parallel_tool_use` allows one call."
    )
    thinking: Thinking | None = parameter(
        "Whether and how long the model reasons. Default: not at all, as for Anthropic's clients, "
        "unless the body has another field about reasoning."
    )
    output_config: OutputConfig | None = parameter("The effort, and the format of the answer.")
    output_format: JsonFormat | None = parameter("The earlier name of `output_config.format`.")
    metadata: AnyMetadata | None = parameter(
        "At most 16 pairs. `user_id` is the end user, for limits and reports of usage.",
        changes_nothing=True,
    )
    context_management: ContextEdits | None = parameter(
        "Only edits that keep all thinking: others are refused.", changes_nothing=True
    )

    @property
    def end_user(self) -> str:
        return (self.metadata or {}).get("user_id") or super().end_user

    @property
    def num_top_logprobs(self) -> None:
        """The answer has no member for log-probabilities."""

    def max_stops(self, dialect: Dialect) -> FieldLimit:
        return field_limits.STOPS_V3

    @property
    def wants_progress(self) -> bool:
        """The start of a stream has the cached tokens."""
        return bool(self.stream)

    def includes_stop_text(self, dialect: Dialect, *, is_streamed: bool) -> bool:
        return bool(self.include_stop_str_in_output)

    @property
    def continues_final_message(self) -> bool:
        return self.messages[-1].role == "assistant" or super().continues_final_message

    def conversation(self) -> core.Conversation:
        """Return the prompt. Raises `InvalidRequest` for blocks in a turn of the wrong role, for
        tools that are too many or too long together, and for a choice that they contradict."""
        tools, choice = tuple(tool.to_core() for tool in self.tools or ()), self.tool_choice
        refuse_too_much(tools)
        return core.Conversation(
            messages=(*system_messages(self.system), *messages_of(self.messages)),
            tools=tools,
            tool_choice=resolve_choice(None if choice is None else choice.to_core(), tools),
            parallel_tool_calls=choice is None or not choice.disable_parallel_tool_use,
            template_kwargs=self.chat_template_kwargs or {},
            rendering=self._rendering(),
        )

    def grammar(self) -> core.Grammar | None:
        """Return the constraint on the answer. Raises `InvalidRequest` for two formats."""
        newer = None if self.output_config is None else self.output_config.format
        formats = {"output_config.format": newer, "output_format": self.output_format}
        return self.constraint(others=[form.grammar(at) for at, form in formats.items() if form])

    def with_thinking(self, request: core.GenerationRequest) -> core.GenerationRequest:
        thinking = self.thinking
        if thinking is None:
            return request
        if thinking.display == "omitted":
            request = replace(request, hides_reasoning=True)
        if thinking.type == "disabled" or thinking.budget_tokens is None:
            return request
        stopping = replace(request.stopping, max_reasoning_tokens=thinking.budget_tokens)
        return replace(request, stopping=stopping)

    def _rendering(self) -> core.Rendering:
        effort = self._effort
        rendering = self.rendering(effort)
        if effort is None and not self._has_other_reasoning:
            return replace(rendering, effort="none")
        return rendering

    @property
    def _effort(self) -> core.Effort | None:
        """None: the body has no effort."""
        effort = None if self.output_config is None else self.output_config.effort
        if self.thinking is None:
            return effort
        # Anthropic's default is high.
        return "none" if self.thinking.type == "disabled" else effort or "high"

    @property
    def _has_other_reasoning(self) -> bool:
        """Whether fields of other systems decide about reasoning."""
        fields = (self.chat_template_kwargs, self.thinking_token_budget, self.chat_template)
        return any(each is not None for each in fields)


class CountBody(MessagesBody):
    """The parameters of `messages/count_tokens`."""

    max_tokens: Annotated[int, Field(ge=1, le=2**32 - 1)] = parameter("No effect.", default=1)
