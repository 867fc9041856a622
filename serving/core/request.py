"""One inner form of a generation request, whatever protocol it came in by.

All values are frozen. `None` in a sampling field means "the client did not say":
the model's `generation_config.json` decides, then the engine's own default.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, assert_never

from serving.core.dialect import V1, Dialect
from serving.core.logprobs import NO_LOGPROBS, UNSTEERED, LogprobsOptions, Steering


class Endpoint(StrEnum):
    """The three doors, as they are named in URLs and usage rows."""

    CHAT = "chat/completions"
    COMPLETIONS = "completions"
    RESPONSES = "responses"


class Role(StrEnum):
    """Who speaks in a conversation."""

    SYSTEM = "system"
    DEVELOPER = "developer"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


@dataclass(frozen=True, slots=True)
class TextPart:
    """A piece of plain text in a message."""

    text: str


# Media parts join this union when vision models are served.
Part = TextPart


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call that an assistant made. `arguments` is JSON text, as clients send it."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Message:
    """One turn. `reasoning` is a replayed thought of the assistant."""

    role: Role
    content: tuple[Part, ...] = ()
    name: str | None = None
    reasoning: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None

    @property
    def text(self) -> str:
        """All text parts, joined by a newline as templates for one string expect."""
        return "\n".join(part.text for part in self.content)


class TextSyntax(StrEnum):
    """What the shape of a text is written in."""

    REGEX = "regex"
    LARK = "lark"


@dataclass(frozen=True, slots=True)
class TextGrammar:
    """What a whole text must fit. `param` names the request field that holds the definition,
    for error messages."""

    syntax: TextSyntax
    definition: str
    param: str


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that the model may call. `parameters` is a JSON schema or None.

    `is_custom`: its client knows it as a tool that takes a text, see `core.custom`.
    `input_grammar`: what that text must fit; None: any will do. `namespace` and `own_name`:
    what its client knows it as where that is not its name, see `core.namespaces`.
    """

    name: str
    description: str | None = None
    parameters: Mapping[str, Any] | None = None
    strict: bool | None = None
    is_custom: bool = False
    input_grammar: TextGrammar | None = None
    namespace: str | None = None
    own_name: str | None = None


class Effort(StrEnum):
    """How much thinking a client wants, from none at all to all there is."""

    NONE = "none"
    MINIMAL = "minimal"
    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"
    XHIGH = "xhigh"
    MAX = "max"


class ToolMode(StrEnum):
    """How free the model is to call tools."""

    NONE = "none"
    AUTO = "auto"
    REQUIRED = "required"
    NAMED = "named"


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """`name` is set exactly when the mode is NAMED.

    `allowed`: the names of those tools that may be called, never empty; None: all. The model
    is shown all tools either way, so that a client can narrow the choice from turn to turn
    without changing the prompt. Only with AUTO and REQUIRED.
    """

    mode: ToolMode = ToolMode.AUTO
    name: str | None = None
    allowed: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if (self.mode is ToolMode.NAMED) != (self.name is not None):
            raise ValueError("a tool name goes with the mode NAMED, and only with it")
        if self.allowed is not None and self.mode in (ToolMode.NONE, ToolMode.NAMED):
            raise ValueError("a list of allowed tools goes with the modes AUTO and REQUIRED")
        if self.allowed == ():
            raise ValueError("where no tool is allowed, the mode is NONE")

    @property
    def is_forced(self) -> bool:
        """Whether a tool must be called."""
        return self.mode in (ToolMode.REQUIRED, ToolMode.NAMED)

    def allows(self, name: str) -> bool:
        """Whether the tool of this name may be called."""
        match self.mode:
            case ToolMode.NONE:
                return False
            case ToolMode.NAMED:
                return name == self.name
            case ToolMode.AUTO | ToolMode.REQUIRED:
                return self.allowed is None or name in self.allowed
            case _:
                assert_never(self.mode)


@dataclass(frozen=True, slots=True)
class Rendering:
    """How messages become the text of a prompt."""

    # The client's own template; None: the model's.
    template: str | None = None
    # False: the texts of the messages are the prompt, and nothing else is.
    uses_template: bool = True
    documents: tuple[Mapping[str, Any], ...] = ()
    effort: Effort | None = None
    # Whether the prompt ends with the opening of an answer.
    adds_generation_prompt: bool = True
    # Whether it ends inside the last message, which the model then goes on with.
    continues_final_message: bool = False


@dataclass(frozen=True, slots=True)
class Conversation:
    """A prompt that a chat template renders.

    With `token_ids` nothing is rendered: they are the prompt, and the messages count only
    for what is said of them in the answer. `drops_oldest`: what does not fit into the
    context loses its oldest turns, instead of being refused.
    """

    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()
    tool_choice: ToolChoice = ToolChoice()
    parallel_tool_calls: bool = True
    template_kwargs: Mapping[str, Any] = field(default_factory=dict)
    drops_oldest: bool = False
    rendering: Rendering = Rendering()
    token_ids: tuple[int, ...] | None = None
    # Whether the answer begins with the text of a last message of the assistant.
    echo: bool = False

    @property
    def callable_tools(self) -> tuple[Tool, ...]:
        """The tools that the choice allows the model to call."""
        return tuple(tool for tool in self.tools if self.tool_choice.allows(tool.name))


@dataclass(frozen=True, slots=True)
class RawPrompts:
    """One or more prompts that go to the model as they are: text, or token ids.

    With a `suffix` the model fills in what stands between it and each prompt.
    """

    prompts: tuple[str | tuple[int, ...], ...]
    echo: bool = False  # whether answers begin with their prompts
    suffix: str | None = None


# For `Encoding.max_tokens`: as many as the model has room for beside the answer.
ALL_THAT_FIT = -1


@dataclass(frozen=True, slots=True)
class Encoding:
    """How the text of a prompt becomes tokens, and which of them are kept."""

    # Whether tokens such as BOS are put around the text. None: around raw prompts only,
    # since a template writes its own.
    adds_special_tokens: bool | None = None
    max_tokens: int | None = None  # None: all; or `ALL_THAT_FIT`
    keeps_start: bool = False  # of too many tokens the first are kept, not the last


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the next token is drawn. Temperature 0 is greedy."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None  # 0 or -1: all
    min_p: float | None = None
    seed: int | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    repetition_penalty: float | None = None


@dataclass(frozen=True, slots=True)
class Repetition:
    """What is taken for running in circles: a pattern of `min_size` to `max_size` tokens that
    stands `min_count` times, at least twice, at the end of a choice."""

    max_size: int
    min_size: int
    min_count: int


@dataclass(frozen=True, slots=True)
class Stopping:
    """When a choice ends.

    `max_tokens` is what the client wants at most: None when it does not say, and 0 only
    for an answer that is nothing but the echo of its prompt. Without it the model's own
    limits count, and `default_max_tokens`, the endpoint's (None: it has none).
    """

    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    include_stop_text: bool = False
    default_max_tokens: int | None = None
    max_tokens_param: str = "max_tokens"  # what the client calls it, for error messages
    # Before this many tokens nothing ends a choice but its limit.
    min_tokens: int = 0
    stop_token_ids: tuple[int, ...] = ()  # beside the model's own end tokens
    ignore_eos: bool = False  # the model's own end tokens do not end a choice
    # How long the model may think. None: as its effort has it.
    max_reasoning_tokens: int | None = None
    repetition: Repetition | None = None  # ends a choice; None: a model may repeat itself


class GrammarKind(StrEnum):
    """What a constraint on the output is written in."""

    JSON_SCHEMA = "json_schema"
    REGEX = "regex"
    EBNF = "ebnf"
    STRUCTURAL_TAG = "structural_tag"
    CHOICE = "choice"  # a JSON array of the texts to choose from


@dataclass(frozen=True, slots=True)
class Grammar:
    """A constraint on the whole output. `source` is its text in the language of `kind`.

    `param` names the request field that asked for it, for error messages. `is_strict`: what
    cannot be held to is refused; otherwise that part of a schema is left out. `is_compact`:
    JSON without any blanks.
    """

    kind: GrammarKind
    source: str
    param: str | None = None
    is_strict: bool = False
    is_compact: bool = False


@dataclass(frozen=True, slots=True)
class Handling:
    """How a request is handled, whatever is generated.

    `priority`: of those that wait, a lower number goes first. `stream_interval`: a stream's
    chunks have at least this many tokens each, all but the first and the last.
    `answer_id`: what the answer is to be known by; None: by an id of the server's own.
    `cache_salt`: prompts share cached work only with prompts of the same salt.
    """

    priority: int = 0
    stream_interval: int = 1
    answer_id: str | None = None
    cache_salt: str | None = field(default=None, repr=False)  # as secret as a password


@dataclass(frozen=True, slots=True)
class SpeculativeDecoding:
    """How far ahead tokens are proposed, for models that are served so. None: as the model's
    authors say, or as usual."""

    num_tokens: int | None = None
    confidence_threshold: float | None = None  # of the draft model; instead of a number
    max_ngram_size: int | None = None  # of what is looked up in the prompt


@dataclass(frozen=True, slots=True)
class BeamSearch:
    """A search for the likeliest answers, `width` of them at a time."""

    width: int
    # Scores are divided by the length of the answer to this power.
    length_penalty: float = 1.0
    # End when `width` answers are complete (True), when better ones are unlikely (False), or
    # when there can be none (None).
    stops_early: bool | None = False
    no_repeat_ngram_size: int = 0  # 0: sequences may repeat


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """What to generate, by which model, for one HTTP request.

    A request has `len(prompts) * n` choices; choice `p * n + i` is sample `i` of
    prompt `p`.
    """

    endpoint: Endpoint
    model: str | None
    prompt: Conversation | RawPrompts
    sampling: Sampling = Sampling()
    stopping: Stopping = Stopping()
    n: int = 1
    beams: BeamSearch | None = None
    assistance: SpeculativeDecoding = SpeculativeDecoding()
    # Draw so many answers for each prompt and return the `n` likeliest. None: draw `n`.
    num_candidates: int | None = None
    grammar: Grammar | None = None
    is_streamed: bool = False
    wants_progress: bool = False  # running counts beside the deltas, as `Progress` events
    steering: Steering = UNSTEERED
    logprobs: LogprobsOptions = NO_LOGPROBS
    wants_token_ids: bool = False  # the ids of all tokens beside the text
    wants_prompt_text: bool = False  # what the prompt's tokens were made of
    dialect: Dialect = V1
    encoding: Encoding = Encoding()
    # Thoughts are read and counted, but not told.
    hides_reasoning: bool = False
    # Special tokens are part of the text, and nothing in it is read as syntax.
    shows_special_tokens: bool = False
    handling: Handling = Handling()

    @property
    def must_call(self) -> bool:
        """Whether the answer must be tool calls, and nothing else."""
        return isinstance(self.prompt, Conversation) and self.prompt.tool_choice.is_forced

    @property
    def num_prompts(self) -> int:
        """How many prompts are completed: more than one only for raw prompts."""
        return len(self.prompt.prompts) if isinstance(self.prompt, RawPrompts) else 1

    @property
    def num_choices(self) -> int:
        """How many answers the client gets."""
        return self.num_prompts * self.n
