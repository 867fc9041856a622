"""A generation request, independent of the protocol of its client.

All values are frozen. `None` in a sampling field means that the client did not send it: the
model's `generation_config.json` decides, then the engine's default.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from functools import cached_property
from itertools import chain
from typing import Any, Final, Literal

from vinery_serving.core.dialects import V1, Dialect
from vinery_serving.core.json_text import size_of
from vinery_serving.core.media import MediaPart
from vinery_serving.core.tasks import Endpoint as Endpoint  # `X as X`: others import it from here

# The clients' names for the prompt, for error messages.
PROMPT_FIELDS: Final = {
    Endpoint.CHAT: "messages",
    Endpoint.COMPLETIONS: "prompt",
    Endpoint.RESPONSES: "input",
    Endpoint.MESSAGES: "messages",
}


@dataclass(frozen=True, slots=True)
class Unused:
    """The parts of a body that take no effect, by their paths. A client may have sent any name."""

    unknown: tuple[str, ...] = ()  # fields that this server does not know: the first of them
    num_unknown: int = 0
    harmless: tuple[str, ...] = ()  # fields of other servers that could not change the answer
    hosted: tuple[str, ...] = ()  # features of OpenAI's service, such as `store`


NOTHING_UNUSED: Final = Unused()


class Role(StrEnum):
    SYSTEM = "system"
    DEVELOPER = "developer"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


@dataclass(frozen=True, slots=True)
class TextPart:
    text: str


ContentPart = TextPart | MediaPart
# Returns the parts that replace a part: a decoded picture, or the pages of a document.
PartsOf = Callable[[MediaPart], Sequence[ContentPart]]


@dataclass(frozen=True, slots=True)
class ToolCall:
    id: str
    name: str
    arguments: str  # the JSON text of an object, or the input text of a custom tool
    is_custom: bool = False  # only new calls


@dataclass(frozen=True, slots=True)
class Message:
    role: Role
    content: tuple[ContentPart, ...] = ()
    name: str | None = None  # of the author
    reasoning: str | None = None  # of an earlier answer that the client sent back
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None  # of the call that a tool message answers
    stays: bool = False  # whether the message is no question, and never left out

    @property
    def texts(self) -> tuple[TextPart, ...]:
        return tuple([part for part in self.content if isinstance(part, TextPart)])

    @property
    def media(self) -> tuple[MediaPart, ...]:
        return tuple(part for part in self.content if isinstance(part, MediaPart))

    @property
    def text(self) -> str:
        """All text parts, joined by newlines as Hugging Face's templates expect."""
        return "\n".join(part.text for part in self.texts)

    def within(self, path: str) -> "Message":
        """Return the message with `path` before the paths of its media."""
        return self.with_media(lambda part: (replace(part, param=f"{path}.{part.param}"),))

    def with_media(self, parts_of: PartsOf) -> "Message":
        if not self.media:
            return self
        parts = (
            parts_of(part) if isinstance(part, MediaPart) else (part,) for part in self.content
        )
        return replace(self, content=tuple(chain.from_iterable(parts)))

    @property
    def num_chars(self) -> int:
        """The characters of all texts that a template may show."""
        num_chars = len(self.name or "") + len(self.reasoning or "") + len(self.tool_call_id or "")
        for part in self.texts:
            num_chars += len(part.text)
        for call in self.tool_calls:
            num_chars += len(call.id) + len(call.name) + len(call.arguments)
        return num_chars


def joined_questions(messages: Iterable[Message]) -> tuple[Message, ...]:
    """Return the messages with those of the user in a row as one: some templates refuse them."""
    joined: list[Message] = []
    for each in messages:
        if joined and each.role is joined[-1].role is Role.USER:
            last = joined.pop()
            content, stays = (*last.content, *each.content), last.stays or each.stays
            each = replace(last, content=content, stays=stays)
        joined.append(each)
    return tuple(joined)


class TextSyntax(StrEnum):
    REGEX = "regex"
    LARK = "lark"


@dataclass(frozen=True, slots=True)
class TextGrammar:
    syntax: TextSyntax
    definition: str
    param: str  # the path of the definition in the request, for error messages


@dataclass(frozen=True)
class Tool:
    name: str  # as the model sees it
    description: str | None = None
    parameters: Mapping[str, Any] | None = None  # a JSON schema
    strict: bool | None = None
    is_custom: bool = False  # whether the client sent it as a custom tool, see `core.tools`
    input_grammar: TextGrammar | None = None  # the grammar of a custom tool's input; None: any text
    # The client's names for a tool in a namespace, see `core.tools`.
    namespace: str | None = None
    own_name: str | None = None

    @cached_property
    def num_chars(self) -> int:
        """The characters of all texts, and of the names in the schema."""
        grammar = "" if self.input_grammar is None else self.input_grammar.definition
        schema = 0 if self.parameters is None else size_of(dict(self.parameters)).num_chars
        return len(self.name) + len(self.description or "") + len(grammar) + schema


Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]


class ToolMode(StrEnum):
    NONE = "none"
    AUTO = "auto"
    REQUIRED = "required"
    NAMED = "named"


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """`name` is set exactly when the mode is NAMED. `allowed` holds the names of the tools that the
    model may call; None: all. It is never empty, and set only with AUTO and REQUIRED. The prompt
    shows all tools in any case, so that a client can change `allowed` without changing the
    prompt."""

    mode: ToolMode = ToolMode.AUTO
    name: str | None = None
    allowed: tuple[str, ...] | None = None

    @property
    def is_forced(self) -> bool:
        return self.mode in (ToolMode.REQUIRED, ToolMode.NAMED)

    def allows(self, name: str) -> bool:
        if self.mode is ToolMode.NAMED:
            return name == self.name
        return self.mode is not ToolMode.NONE and (self.allowed is None or name in self.allowed)

    def among(self, tools: Sequence[Tool]) -> tuple[Tool, ...]:
        names = None if self.allowed is None else frozenset(self.allowed)
        return tuple(
            tool
            for tool in tools
            if (self.allows(tool.name) if names is None else tool.name in names)
        )


@dataclass(frozen=True, slots=True)
class Rendering:
    template: str | None = None  # the client's chat template; None: the model's
    uses_template: bool = True  # False: the prompt is the text of the messages, without a template
    documents: tuple[Mapping[str, Any], ...] = ()  # for the template, as Hugging Face's `documents`
    effort: Effort | None = None
    # Whether the prompt ends with the start of an assistant message.
    adds_generation_prompt: bool = True
    # Whether the prompt ends inside the last message, so that the answer continues it.
    continues_final_message: bool = False


@dataclass(frozen=True, slots=True)
class Conversation:
    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()
    tool_choice: ToolChoice = ToolChoice()
    parallel_tool_calls: bool = True
    template_kwargs: Mapping[str, Any] = field(default_factory=dict)
    # Whether a prompt that exceeds the context loses its oldest messages, or is refused.
    drops_oldest: bool = False
    rendering: Rendering = Rendering()
    token_ids: tuple[int, ...] | None = None  # the whole prompt: the template does not run
    # Whether the answer begins with the text of the last message, if the assistant wrote it.
    echo: bool = False

    @property
    def callable_tools(self) -> tuple[Tool, ...]:
        return self.tool_choice.among(self.tools)

    @property
    def offers_tools(self) -> bool:
        return bool(self.tools) and self.tool_choice.mode is not ToolMode.NONE

    @property
    def has_calls(self) -> bool:
        return any(message.tool_calls for message in self.messages)

    @property
    def media(self) -> tuple[MediaPart, ...]:
        parts = [part for message in self.messages for part in message.content]
        return tuple([part for part in parts if isinstance(part, MediaPart)])

    def with_media(self, parts_of: PartsOf) -> "Conversation":
        messages = tuple(message.with_media(parts_of) for message in self.messages)
        return replace(self, messages=messages)

    @property
    def num_chars(self) -> int:
        values = [dict(each) for each in (self.template_kwargs, *self.rendering.documents)]
        return (
            sum(message.num_chars for message in self.messages)
            + sum(tool.num_chars for tool in self.tools)
            + sum(size_of(value).num_chars for value in values if value)
        )


@dataclass(frozen=True, slots=True)
class RawPrompts:
    """One or more prompts without a template: texts, or lists of token ids."""

    prompts: tuple[str | tuple[int, ...], ...]
    echo: bool = False  # whether each answer begins with the prompt
    suffix: str | None = None  # the model generates the text between a prompt and this text

    @property
    def num_chars(self) -> int:
        texts = [prompt for prompt in self.prompts if isinstance(prompt, str)]
        return sum(map(len, texts)) + len(self.suffix or "")


# A value of `Encoding.max_tokens`: as many tokens as fit into the context with the answer.
ALL_THAT_FIT = -1


@dataclass(frozen=True, slots=True)
class Encoding:
    """How the text of a prompt becomes tokens, and how a long prompt is truncated."""

    # Whether the tokenizer adds tokens such as BOS. None: for raw prompts only.
    adds_special_tokens: bool | None = None
    max_tokens: int | None = None  # of the prompt; None: no truncation; or `ALL_THAT_FIT`
    keeps_start: bool = False  # whether truncation keeps the first tokens, not the last


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the next token is sampled. Temperature 0 is greedy decoding. The struct travels from the
    request to the pipeline. In a request, None means that the client did not send the value; in the
    engine, a value that is None has no effect."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None  # 0 or -1: all
    min_p: float | None = None
    seed: int | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    repetition_penalty: float | None = None


SAMPLERS: Final = tuple(each.name for each in fields(Sampling))
# The values that have no effect, and greedy decoding.
NEUTRAL: Final = Sampling(0.0, 1.0, 0, 0.0, 0, 0.0, 0.0, 1.0)
# What the engine takes. It excludes the limits 0 and 1, which other servers allow: a nucleus of
# 1e-9 has one token in any vocabulary, and with the largest 32-bit float below 1 only tokens as
# likely as the likeliest one remain.
BOUNDS: Final = {"top_p": (1e-9, 1.0), "top_k": (0, 2**31 - 1), "min_p": (0.0, 1 - 2**-24)}


@dataclass(frozen=True, slots=True)
class Repetition:
    """A choice ends when a pattern of tokens comes `min_count` times in a row. From vLLM."""

    max_size: int  # tokens
    min_size: int  # tokens
    min_count: int  # at least 2


@dataclass(frozen=True, slots=True)
class Stopping:
    # The client's limit of output tokens; None: none was sent, 0: only the prompt is echoed.
    max_tokens: int | None = None
    # Whether the answer may get fewer tokens if there is no room for `max_tokens`.
    may_shrink: bool = False
    # Whether the client asked for no limit, so that only the options of the model limit it.
    is_unlimited: bool = False
    stop: tuple[str, ...] = ()
    include_stop_text: bool = False  # whether the answer includes the stop string
    # The endpoint's limit when the client sent none. None: only the model's limits apply.
    default_max_tokens: int | None = None
    max_tokens_param: str = "max_tokens"  # the client's name for it, for error messages
    min_tokens: int = 0  # with fewer output tokens, only the limit ends a choice
    stop_token_ids: tuple[int, ...] = ()  # in addition to the model's end tokens
    ignore_eos: bool = False  # whether the model's end tokens do not end a choice
    # The budget of reasoning tokens. None: the budget of the request's effort.
    max_reasoning_tokens: int | None = None
    repetition: Repetition | None = None  # None: repetition does not end a choice


@dataclass(frozen=True, slots=True)
class LogprobsOptions:
    """The log-probabilities that the client wants: of the model's own distribution, unless
    `is_temperature_scaled` or `is_top_p_normalized` is set."""

    # Alternatives for each token of the answer. None: no log-probabilities.
    num_top: int | None = None
    # Alternatives for each token of the prompt. None: no log-probabilities.
    num_top_of_prompt: int | None = None
    token_ids: tuple[int, ...] = ()  # tokens to report at each position, whatever their rank
    is_temperature_scaled: bool = False  # divide the logits by the temperature first
    is_top_p_normalized: bool = False  # exclude the tokens that `top_p` excludes
    tokens_as_ids: bool = False  # write tokens as `token_id:7` instead of their text


@dataclass(frozen=True, slots=True)
class Steering:
    """The client's changes to the logits, by its own names. Token ids are not checked yet."""

    logit_bias: tuple[tuple[int, float], ...] = ()  # (token id, addend to its logit)
    bad_words: tuple[str, ...] = ()
    bad_words_token_ids: tuple[tuple[int, ...], ...] = ()
    allowed_token_ids: tuple[int, ...] = ()  # empty: all
    # Arguments for the administrator's logits processors. None: they do not run.
    logits_processors_args: Mapping[str, Any] | None = None

    @property
    def first_field(self) -> str | None:
        return next((each.name for each in fields(self) if getattr(self, each.name)), None)


class GrammarKind(StrEnum):
    JSON_SCHEMA = "json_schema"
    REGEX = "regex"
    EBNF = "ebnf"
    STRUCTURAL_TAG = "structural_tag"
    CHOICE = "choice"  # a JSON array of the texts to choose from


@dataclass(frozen=True, slots=True)
class Grammar:
    kind: GrammarKind
    source: str  # in the language of `kind`
    param: str | None = None  # the path of the request field, for error messages
    # Whether a schema with unsupported keywords is refused. Otherwise these are ignored.
    is_strict: bool = False
    is_compact: bool = False  # whether JSON has no whitespace


@dataclass(frozen=True, slots=True)
class Handling:
    """Options that do not change the generated text. Most are from vLLM."""

    priority: int = 0  # of one key, waiting requests with a lower number start first
    # The least number of tokens in a stream's chunk, except the first and the last chunk.
    stream_interval: int = 1
    answer_id: str | None = None  # the id of the answer; None: the server creates one
    is_background: bool = False  # the client does not wait for the answer
    is_flex: bool = False  # the client can wait

    @property
    def is_low_tier(self) -> bool:
        return self.is_background or self.is_flex

    # Only prompts of one organisation with the same salt share the prefix cache. Secret.
    cache_salt: str | None = field(default=None, repr=False)
    end_user: str = field(default="", repr=False, compare=False)  # the client's own user


@dataclass(frozen=True, slots=True)
class SpeculativeDecoding:
    """From OVMS. In a request, None is the model's or the server's default; in the engine, a value
    that is None has no effect, and without `num_tokens` the draft model proposes while it is sure.
    """

    num_tokens: int | None = None  # tokens that the draft proposes in a step
    confidence_threshold: float | None = None  # of the draft model; replaces `num_tokens`
    max_ngram_size: int | None = None  # tokens, for prompt lookup
    is_asked: bool = False  # the request itself says how many tokens, or how sure


@dataclass(frozen=True, slots=True)
class BeamSearch:
    """Beam search, with the parameters of Hugging Face's `generate`."""

    width: int  # beams
    length_penalty: float = 1.0  # a score is divided by the answer's length to this power
    # When the search ends. True: when `width` answers are complete. False: when a better
    # answer is unlikely. None: when a better answer is impossible.
    stops_early: bool | None = False
    no_repeat_ngram_size: int = 0  # tokens; 0: no restriction
    param: str = "use_beam_search"  # the field that asks for beam search


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """An HTTP request for generation. A request has `num_prompts * n` choices. Choice `p * n + i`
    is sample `i` of prompt `p`."""

    endpoint: Endpoint
    model: str | None
    prompt: Conversation | RawPrompts
    sampling: Sampling = Sampling()
    stopping: Stopping = Stopping()
    n: int = 1
    beams: BeamSearch | None = None
    assistance: SpeculativeDecoding = SpeculativeDecoding()
    # Sampled answers for each prompt, of which the `n` most likely are returned. None: `n`.
    num_candidates: int | None = None
    grammar: Grammar | None = None
    is_streamed: bool = False
    wants_progress: bool = False  # whether `Progress` events are sent
    # Whether `Arrived` events are sent. None: as the model's options have it.
    shows_arrival: bool | None = None
    # Whether answers to raw prompts are parsed for reasoning and tool calls; None as above.
    parses_output: bool | None = None
    steering: Steering = Steering()
    logprobs: LogprobsOptions = LogprobsOptions()
    wants_token_ids: bool = False  # of the prompts and the answers
    wants_prompt_text: bool = False
    dialect: Dialect = V1
    encoding: Encoding = Encoding()
    hides_reasoning: bool = False  # whether reasoning is counted, but left out of the answer
    # Whether the text includes special tokens. Reasoning and tool calls are then not parsed.
    shows_special_tokens: bool = False
    handling: Handling = Handling()
    # Above so many tokens of the prompt a summary comes before the answer. 0: it is the answer.
    compact_above: int | None = None
    # Describes the rest of the body, which is no part of the request.
    unused: Unused = field(default=NOTHING_UNUSED, compare=False)
    # The parameters that the client sent, as a JSON object without texts, for the usage record.
    sent: str = field(default="", compare=False)

    @property
    def media(self) -> tuple[MediaPart, ...]:
        return self.prompt.media if isinstance(self.prompt, Conversation) else ()

    def with_media(self, parts_of: PartsOf) -> "GenerationRequest":
        if not self.media:
            return self
        assert isinstance(self.prompt, Conversation)
        return replace(self, prompt=self.prompt.with_media(parts_of))

    @property
    def must_call(self) -> bool:
        return isinstance(self.prompt, Conversation) and self.prompt.tool_choice.is_forced

    @property
    def counts_prompt_chars(self) -> bool:
        """Whether the answer has offsets that begin after a prompt which is not in the text."""
        has_offsets = isinstance(self.prompt, RawPrompts) and self.logprobs.num_top is not None
        return has_offsets and self.dialect.offsets_include_prompt and not self.prompt.echo

    @property
    def num_prompts(self) -> int:
        return len(self.prompt.prompts) if isinstance(self.prompt, RawPrompts) else 1

    @property
    def num_choices(self) -> int:
        return self.num_prompts * self.n
