"""The body of a Responses request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from serving.core.errors import MissingParameter, UnsupportedParameter
from serving.core.request import V1, Conversation, Dialect, Grammar, Message, Role, TextPart
from serving.protocols.constraints import ResponseFormat, TextFormat
from serving.protocols.fields import Effort
from serving.protocols.generation import GenerationBody
from serving.protocols.labels import Metadata
from serving.protocols.prompting import PromptFields
from serving.protocols.reading import Wire, unsupported
from serving.protocols.responses.input import Input, turns, without_old_thoughts
from serving.protocols.steering import TopLogprobs
from serving.protocols.tools import (
    WireToolChoice,
    WireTools,
    clients_tools,
    settled_choice,
)

Summary = Literal["auto", "concise", "detailed"]
_PACKED_THOUGHTS = "reasoning.encrypted_content"
_LOGPROBS = "message.output_text.logprobs"


def _refuse_pro(value: object) -> object:
    if value == "pro":
        raise unsupported("must be standard: a model has one way to think here")
    return value


Mode = Annotated[
    Literal["standard"], BeforeValidator(_refuse_pro, json_schema_input_type=Literal["standard"])
]

# What adds to the items of hosted tools, or to images, adds nothing here: there are none.
Includable = Literal[
    "reasoning.encrypted_content",
    "message.output_text.logprobs",
    "message.input_image.image_url",
    "file_search_call.results",
    "web_search_call.results",
    "web_search_call.action.sources",
    "computer_call_output.output.image_url",
    "code_interpreter_call.outputs",
]


class ReasoningOptions(Wire):
    """`reasoning`. The summary is the thinking itself, however it was asked for."""

    effort: Effort | None = None
    summary: Summary | None = None
    # The deprecated name of `summary`.
    generate_summary: Summary | None = None
    # Which replayed thoughts the template is given; it decides which of them it shows.
    context: Literal["auto", "current_turn", "all_turns"] | None = None
    mode: Mode | None = None


class TextOptions(Wire):
    """`text`. Verbosity is repeated, and left to the prompt."""

    format: TextFormat | None = None
    verbosity: Literal["low", "medium", "high"] | None = None


class ResponsesBody(PromptFields, GenerationBody):
    """The body of a Responses request."""

    input: Input | None = None
    instructions: str | None = None
    tools: WireTools | None = None
    tool_choice: WireToolChoice = None
    parallel_tool_calls: bool | None = None
    reasoning: ReasoningOptions | None = None
    text: TextOptions | None = None
    response_format: ResponseFormat | None = None
    include: Annotated[list[Includable], Field(fail_fast=True)] | None = None
    # A limit for the calls of hosted tools, which are never called here.
    max_tool_calls: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = None
    # OVMS's way to ask for what `include` asks for.
    logprobs: bool | None = None
    top_logprobs: TopLogprobs | None = None
    truncation: Literal["auto", "disabled"] | None = None
    metadata: Metadata | None = None

    @property
    def packs_thoughts(self) -> bool:
        """Whether thoughts are also told as one opaque string."""
        return _PACKED_THOUGHTS in (self.include or ())

    def require_input(self) -> None:
        """Raises `MissingParameter`."""
        if self.input is None:
            raise MissingParameter("`input` is required.", param="input")

    @property
    def num_top_logprobs(self) -> int | None:
        """Asking for the likeliest others is asking for the token's own too."""
        is_asked = self.logprobs or self.top_logprobs or _LOGPROBS in (self.include or ())
        return self.top_logprobs or 0 if is_asked else None

    def conversation(self) -> Conversation:
        """The prompt. Raises `InvalidRequest` for a tool choice that no tool fits."""
        tools = clients_tools(self.tools or ())
        effort = None if self.reasoning is None else self.reasoning.effort
        return Conversation(
            messages=(*self._instruction(), *self._turns()),
            tools=tools,
            tool_choice=settled_choice(self.tool_choice, tools),
            parallel_tool_calls=self.parallel_tool_calls is not False,
            template_kwargs=self.template_kwargs,
            rendering=self.rendering(effort),
            drops_oldest=self.truncation == "auto",
        )

    def grammar(self, dialect: Dialect) -> Grammar | None:
        """The constraint on the output. Raises `InvalidRequest` for one in a field that
        only OVMS reads here."""
        own = self.response_format
        if own is not None and own.type != "text" and dialect == V1:
            raise UnsupportedParameter(
                "`response_format` belongs to chat completions. Use `text.format` instead.",
                param="response_format",
            )
        return self.constraint(self._text.format, own)

    @property
    def _text(self) -> TextOptions:
        return self.text or TextOptions()

    def _turns(self) -> Sequence[Message]:
        messages = turns(self.input or ())
        if self.reasoning is not None and self.reasoning.context == "current_turn":
            return without_old_thoughts(messages)
        return messages

    def _instruction(self) -> Sequence[Message]:
        if not self.instructions:
            return ()
        return (Message(Role.SYSTEM, (TextPart(self.instructions),)),)
