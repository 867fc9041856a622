"""The answers of the endpoints, as types.

The encoders write answers as bytes and do not use these types. The OpenAPI document shows
them, and tests validate every answer with them.

Each type begins with its name and description. A line below has the names of members and their
Python type, perhaps with a description after `#`. A member with `?` may be absent, but is not
null unless its type allows it; `...` stands for unknown members. A member `root` is the whole
value.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, RootModel, create_model

# FastDeploy's members, for requests with `return_token_ids`.
_TOKENS: Final = """\
prompt_token_ids?, completion_token_ids?: list[int]
  prompt_tokens?: str  # The text of the prompt's tokens.
  completion_tokens?: str  # Their text, with special tokens, reasoning and tool calls.\
"""

_SHARED: Final = """
TokenChance: An alternative to a token.
  token: str
  logprob: float | None
  bytes: list[int]

TokenLogprob: A token of the answer.
  token: str
  logprob: float | None
  bytes: list[int]
  top_logprobs: list[TokenChance]

RankedToken: The log-probability of a token of the prompt, and its rank; 1 is the most likely.
  logprob: float | None
  rank: int | None
  decoded_token: str

PromptDetails: Part of the prompt's tokens.
  cached_tokens: int  # From the prefix cache.
  image_tokens?: int  # Of pictures, if the prompt has any.
  video_tokens?: int  # Of videos, if the prompt has any.

CompletionDetails: Part of the answer's tokens.
  reasoning_tokens, accepted_prediction_tokens?, rejected_prediction_tokens?: int

Usage: Tokens of the whole request, with all its answers.
  prompt_tokens, completion_tokens, total_tokens: int
  prompt_tokens_details: PromptDetails
  completion_tokens_details: CompletionDetails

ErrorDetails: An error, and what the client must change.
  message: str
  type: Literal["invalid_request_error", "server_error"]
  param: str | None  # The path of the field, such as `messages[2].content`.
  code: str | None  # docs/errors.md lists all codes.

Error: The body of every error, and the last event of a failed stream.
  error: ErrorDetails
"""

_CHATS: Final = f"""
CalledFunction: A function and its arguments, as JSON text.
  name, arguments: str

FunctionToolCall: A call of a function.
  id: str
  type: Literal["function"]
  function: CalledFunction

CalledCustomTool: A custom tool and its input.
  name, input: str

CustomToolCall: A call of a custom tool.
  id: str
  type: Literal["custom"]
  custom: CalledCustomTool

ChatLogprobs: The tokens of a chat's answer, or of a chunk.
  content: list[TokenLogprob]
  refusal: None

ChatMessage: The model's answer. Reasoning has two names, because clients read one or the other.
  role: Literal["assistant"]
  content: str | None
  refusal: None
  reasoning_content?, reasoning?: str
  tool_calls?: list[FunctionToolCall | CustomToolCall]
  function_call?: CalledFunction
  {_TOKENS}

ChatChoice: One answer.
  index: int
  message: ChatMessage
  logprobs: ChatLogprobs | None
  finish_reason: ChatFinishReason
  stop_reason: StopReason
  token_ids?: list[int]
  arrival_time?: float

ChatCompletion: The whole answer to a chat.
  id, model: str
  object: Literal["chat.completion"]
  created: int
  system_fingerprint: str | None
  service_tier?, prompt_text?: str
  metadata?: dict[str, str]
  choices: list[ChatChoice]
  usage: Usage
  prompt_token_ids?: list[int]
  prompt_logprobs?: list[dict[str, RankedToken] | None]

CalledFunctionDelta: More of a call: its name first, then parts of its arguments.
  name?, arguments: str

CalledCustomToolDelta: More of a call: its name first, then parts of its input.
  name?, input: str

ToolCallDelta: More of a call. Its id and type come in its first chunk.
  index: int
  id?: str
  type?: Literal["function", "custom"]
  function?: CalledFunctionDelta
  custom?: CalledCustomToolDelta

ChatDelta: More of an answer. The role comes in the first chunk.
  role?: Literal["assistant"]
  content?: str | None  # Null in the first chunk under /v3.
  reasoning_content?, reasoning?: str
  tool_calls?: list[ToolCallDelta]
  function_call?: CalledFunctionDelta
  {_TOKENS}

ChatChunkChoice: More of one answer.
  index: int
  delta: ChatDelta
  logprobs: ChatLogprobs | None
  finish_reason: ChatFinishReason | None
  stop_reason?: StopReason
  token_ids?: list[int]
  arrival_time?: float

ChatCompletionChunk: An event of a streamed chat. The event with the total usage has no choices.
  id, model: str
  object: Literal["chat.completion.chunk"]
  created: int
  system_fingerprint: str | None
  service_tier?, prompt_text?, obfuscation?: str
  choices: list[ChatChunkChoice]
  usage?: Usage | None
  prompt_token_ids?: list[int]
"""

_COMPLETIONS: Final = f"""
TextLogprobs: The tokens of a completion, or of a chunk, as parallel lists.
  tokens: list[str]
  token_logprobs: list[float | None]
  top_logprobs: list[dict[str, float | None] | None]
  text_offset: list[int]

CompletionChoice: One answer, or more of one.
  index: int
  text: str
  reasoning_content?: str  # With `parse_output`, as the calls.
  tool_calls?: list[ToolCallDelta | FunctionToolCall]
  logprobs: TextLogprobs | None
  finish_reason: Literal["stop", "length", "tool_calls"] | None
  stop_reason?: StopReason
  arrival_time?: float
  prompt_text?: str
  token_ids?: list[int]
  {_TOKENS}
  prompt_logprobs?: list[dict[str, RankedToken] | None]

Completion: The whole answer to a completion, and each event of a streamed one.
  id, model: str
  object: Literal["text_completion"]
  created: int
  system_fingerprint: str | None
  choices: list[CompletionChoice]
  usage?: Usage | None
  obfuscation?: str
"""

_MODELS: Final = """
ModelCapabilities: What a model can do, with Mistral's names.
  completion, completion_chat, completion_fim, function_calling, reasoning: bool
  structured_outputs, vision, audio: bool

ModelArchitecture: What a model reads and writes, with OpenRouter's names.
  modality: str
  input_modalities, output_modalities: list[str]

ModelProvider: The limits of a model, with OpenRouter's names.
  context_length, max_completion_tokens: int | None
  is_moderated: bool

Model: A served model.
  id, owned_by: str
  object: Literal["model"]
  created: int  # Seconds since 1970.
  state: Literal["loaded", "loading", "failed", "not-loaded"]
  task: Literal["chat", "completion", "vision", "embeddings", "rerank"]
  max_model_len, context_length, max_context_length: int | None  # Prompt and answer, in tokens.
  architecture: ModelArchitecture
  top_provider: ModelProvider
  capabilities: ModelCapabilities | None  # Null: not loaded, or no text generation.
  supported_parameters: list[str] | None

ModelList: The models that can answer now, or all of them.
  object: Literal["list"]
  data: list[Model]

Version: The server's version.
  version: str

CountedTokens: The answer to a `prompt` or to `messages`.
  count: int
  max_model_len: int | None  # The model's context, in tokens.
  tokens: list[int]
  token_strs: list[str] | None

Tokens: The answer to a `text`, or to several.
  tokens: list[int] | list[list[int]]

Tokenized: Tokens, in the form of the system whose body the client sent.
  root: CountedTokens | Tokens

Detokenized: The text of some tokens.
  prompt: str

AddedToken: A token that was added to a vocabulary.
  content?: str
  special?: bool
  ...

TokenizerInfo: A tokenizer, with the names of Hugging Face's files. Null: the model's files do \
not have the value.
  tokenizer_class, chat_template: str | None
  bos_token, eos_token, unk_token, sep_token, pad_token, cls_token: str | None
  added_tokens_decoder: dict[str, AddedToken]  # By id.
  model_max_length: int | None  # The model's context, in tokens.

PoolingUsage: The tokens of all texts.
  prompt_tokens, total_tokens: int

Embedding: The vector of one text: numbers, or their 32-bit floats in base64.
  object: Literal["embedding"]
  index: int
  embedding: list[float] | str

Embeddings: One vector for each text.
  object: Literal["list"]
  model: str
  data: list[Embedding]
  usage: PoolingUsage

RankedDocument: A document, and how relevant it is: 0 to 1.
  index: int  # In `documents` of the request.
  relevance_score: float
  document?: dict[str, Any]

ApiVersion: The version of Cohere's API that the answer has.
  version: str

BilledTokens: The tokens of all texts, with Cohere's names.
  input_tokens, output_tokens: int

RerankMeta: Cohere's data about the answer.
  api_version: ApiVersion
  tokens: BilledTokens

Rerank: The most relevant documents, the best one first.
  object: Literal["list"]
  id, model: str
  results: list[RankedDocument]
  usage: PoolingUsage
  meta: RerankMeta

Score: How well two texts fit: 0 to 1.
  object: Literal["score"]
  index: int
  score: float

Scores: One score for each pair of texts.
  object: Literal["list"]
  id, model: str
  data: list[Score]
  usage: PoolingUsage

InputTokens: The number of tokens in the prompt of a request.
  object: Literal["response.input_tokens"]
  input_tokens: int
"""

_RESPONSES: Final = """
OutputText: The text of a message.
  type: Literal["output_text"]
  text: str
  annotations: list[Any]
  logprobs: list[TokenLogprob]

OutputMessage: Answer text of the model.
  id: str
  type: Literal["message"]
  status: ItemStatus
  role: Literal["assistant"]
  content: list[OutputText]

SummaryText: The whole reasoning.
  type: Literal["summary_text"]
  text: str

ThoughtText: The whole reasoning.
  type: Literal["reasoning_text"]
  text: str

OutputReasoning: Reasoning of the model. `summary` and `content` have the same text.
  id: str
  type: Literal["reasoning"]
  status: ItemStatus
  summary: list[SummaryText]
  content: list[ThoughtText]
  encrypted_content: str | None

OutputCall: A call of a function.
  id, call_id, name, namespace?, arguments: str
  type: Literal["function_call"]
  status: ItemStatus

OutputCustomCall: A call of a custom tool.
  id, call_id, name, namespace?, input: str
  type: Literal["custom_tool_call"]
  status: ItemStatus

InputDetails: Part of the prompt's tokens.
  cached_tokens, cache_write_tokens: int
  image_tokens?: int  # Of pictures, if the prompt has any.
  video_tokens?: int  # Of videos, if the prompt has any.

OutputDetails: Part of the answer's tokens.
  reasoning_tokens, accepted_prediction_tokens?, rejected_prediction_tokens?: int

ResponseUsage: Tokens of the whole request.
  input_tokens, output_tokens, total_tokens: int
  input_tokens_details: InputDetails
  output_tokens_details: OutputDetails

ResponseError: Why a response failed.
  code: Literal["rate_limit_exceeded", "invalid_prompt", "server_error"]
  message: str

IncompleteDetails: `max_output_tokens` on /v1, `max_tokens` on /v3.
  reason: Literal["max_output_tokens", "max_tokens"]
  stop_reason?: Literal["quota_exceeded"]  # A quota of the client was used up before that limit.

EchoedInputFormat: The `format` of a custom tool, repeated. A grammar comes with its members.
  type: Literal["text", "grammar"]
  syntax?: Literal["lark", "regex"]
  definition?: str

EchoedCustomTool: A custom tool, in the flat form.
  type: Literal["custom"]
  name: str
  description: str | None
  format: EchoedInputFormat

EchoedFunction: A function, in the flat form.
  type: Literal["function"]
  name: str
  description: str | None
  parameters: dict[str, Any] | None
  strict: bool | None

EchoedNamespace: A namespace with its tools.
  type: Literal["namespace"]
  name, description: str
  tools: list[EchoedFunction | EchoedCustomTool]

EchoedReasoning: `reasoning`, repeated.
  effort, summary: str | None
  context?, mode?: str

EchoedFormat: `text.format`, repeated. A schema comes with its members.
  type, name?: str
  description?: str | None
  schema_?: dict[str, Any]
  strict?: bool | None

EchoedText: `text`, repeated.
  format: EchoedFormat
  verbosity: Literal["low", "medium", "high"]

EchoedCacheOptions: `prompt_cache_options`, repeated.
  mode, ttl: str

Response: A response in any state. Members that repeat the request have OpenAI's defaults.
  id, model: str
  object: Literal["response"]
  created_at: int
  status: Literal["in_progress", "completed", "incomplete", "failed"]
  completed_at: int | None
  error: ResponseError | None
  incomplete_details: IncompleteDetails | None
  output: list[OutputItem]
  usage: ResponseUsage | None
  instructions: str | None
  max_output_tokens, max_tool_calls: int | None
  previous_response_id: None
  tools: list[EchoedFunction | EchoedCustomTool | EchoedNamespace]
  tool_choice: Literal["none", "auto", "required"] | dict[str, Any]
  parallel_tool_calls, store, background: bool
  reasoning: EchoedReasoning
  text: EchoedText
  temperature, top_p, presence_penalty, frequency_penalty: float
  top_logprobs: int
  truncation: Literal["auto", "disabled"]
  service_tier: str
  metadata: dict[str, str]
  user, safety_identifier, prompt_cache_key, prompt_cache_retention: str | None
  prompt_cache_options?: EchoedCacheOptions

ResponseEvent: An event of a streamed response. Its members depend on its type.
  type: ResponseEventType
  sequence_number, output_index?, content_index?, summary_index?: int
  response?: Response
  item?: OutputItem
  part?: OutputText | SummaryText | ThoughtText
  item_id?, call_id?, name?, namespace?, delta?, text?, arguments?, input?, obfuscation?: str
  logprobs?: list[TokenLogprob]
  code?: str | None  # Of the event `error`.
  message?: str
  param?: str | None
"""

_MESSAGES: Final = """
AnswerText: Text of the model.
  type: Literal["text"]
  text: str

AnswerThinking: Reasoning of the model. This server reads no signature.
  type: Literal["thinking"]
  thinking, signature: str

AnswerToolUse: A call of a tool. Arguments that are no JSON object are its member `INVALID_JSON`.
  type: Literal["tool_use"]
  id, name: str
  input: dict[str, Any]

ThinkingTokens: Part of the answer's tokens.
  thinking_tokens: int

MessageUsage: Tokens of the whole request. The prompt has the first three together.
  input_tokens: int  # Without those from the prefix cache.
  cache_creation_input_tokens: int  # 0: the prefix cache fills itself.
  cache_read_input_tokens: int  # From the prefix cache.
  output_tokens: int
  output_tokens_details: ThinkingTokens

MessageAnswer: The whole answer to a conversation.
  id, model: str
  type: Literal["message"]
  role: Literal["assistant"]
  content: list[AnswerBlock]
  stop_reason: MessageStopReason | None  # Null at the start of a stream.
  stop_sequence: str | None
  usage: MessageUsage

MessageDelta: More of a block, or the end of the message.
  type?: Literal["text_delta", "thinking_delta", "signature_delta", "input_json_delta"]
  text?, thinking?, signature?, partial_json?: str
  stop_reason?: MessageStopReason
  stop_sequence?: str | None

MessageEvent: An event of a streamed message. Its members depend on its type.
  type: MessageEventType
  message?: MessageAnswer
  index?: int
  content_block?: AnswerBlock
  delta?: MessageDelta
  usage?: MessageUsage
  error?: MessageErrorDetails
  obfuscation?: str

MessageErrorDetails: An error, and what the client must change.
  type: MessageErrorType
  message: str

MessageError: The body of every error of this endpoint, in Anthropic's form.
  type: Literal["error"]
  error: MessageErrorDetails
  request_id?: str

MessageTokens: The number of tokens in the prompt of a request.
  input_tokens: int
"""

# The names of types in the texts above that are no models.
_TYPES: Final[Mapping[str, Any]] = {
    "Any": Any,
    "Literal": Literal,
    "ChatFinishReason": Literal["stop", "length", "tool_calls", "function_call"],
    # The stop string or stop token that ended the answer, `repetition_detected` or
    # `quota_exceeded`. Null: another reason.
    "StopReason": str | int | None,
    "ItemStatus": Literal["in_progress", "completed", "incomplete"],
    "OutputItem": "OutputMessage | OutputReasoning | OutputCall | OutputCustomCall",
    "AnswerBlock": "AnswerText | AnswerThinking | AnswerToolUse",
    "MessageStopReason": Literal[
        "end_turn", "max_tokens", "stop_sequence", "tool_use", "model_context_window_exceeded"
    ],
    "MessageErrorType": Literal[
        "invalid_request_error",
        "authentication_error",
        "permission_error",
        "not_found_error",
        "request_too_large",
        "rate_limit_error",
        "api_error",
        "overloaded_error",
    ],
    "MessageEventType": Literal[
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
        "ping",
        "error",
    ],
    "ResponseEventType": Literal[
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.output_item.done",
        "response.content_part.added",
        "response.content_part.done",
        "response.output_text.delta",
        "response.output_text.done",
        "response.reasoning_summary_part.added",
        "response.reasoning_summary_part.done",
        "response.reasoning_summary_text.delta",
        "response.reasoning_summary_text.done",
        "response.reasoning_text.done",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        "response.custom_tool_call_input.delta",
        "response.custom_tool_call_input.done",
        "response.completed",
        "response.incomplete",
        "response.failed",
        "error",
    ],
}


def _open(schema: dict[str, Any]) -> None:
    """Later versions may add members."""
    schema.pop("additionalProperties", None)


class _Answer(BaseModel):
    """In tests, an undescribed member is an error."""

    model_config = ConfigDict(strict=True, extra="forbid", json_schema_extra=_open)


def _read(*texts: str) -> Mapping[str, type[BaseModel]]:
    """Return the types that `texts` describe, by name."""
    models: dict[str, type[BaseModel]] = {}
    for entry in "".join(texts).strip().split("\n\n"):
        head, *lines = entry.removesuffix("\n  ...").splitlines()
        name, _, description = head.partition(": ")
        members: dict[str, Any] = dict(_members(lines))
        base: type[BaseModel] = RootModel if "root" in members else _Answer
        models[name] = create_model(
            name,
            __base__=base,
            __doc__=description,
            __cls_kwargs__={"extra": "allow"} if entry.endswith("...") else {},
            **members,
        )
    for model in models.values():
        model.model_rebuild(_types_namespace={**_TYPES, **models})
    return models


def _members(lines: Iterable[str]) -> Iterator[tuple[str, Any]]:
    """Yield each member's name, and its type and field. Pydantic has methods with some names,
    so these end with an underscore here."""
    for line in lines:
        names, _, rest = line.strip().partition(": ")
        kind, _, description = rest.partition("  # ")
        for name in names.split(", "):
            default = None if name.endswith("?") else ...
            field = name.removesuffix("?")
            alias = field.removesuffix("_")
            yield field, (kind, Field(default, alias=alias, description=description or None))


ANSWERS: Final = _read(_SHARED, _CHATS, _COMPLETIONS, _MODELS, _RESPONSES, _MESSAGES)
