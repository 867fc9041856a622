"""How large the fields of a request may be: one table for the parsers, the documents and the
settings.

Each limit is checked before any work is done with its field. The defaults are OpenAI's where OpenAI
has a limit; the others are far above what clients send, and low enough that any request costs
little. `configure` sets the limits of this process once, from its settings.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from typing import Final

HOST_LABEL: Final = r"[A-Za-z0-9_.-]{1,64}=[^\s,=]{1,253}"  # A label of a host, such as disk=fast


class Counted(StrEnum):
    """The unit of a limit. The value is the word in the error message."""

    ENTRIES = "entries"  # of an array
    MEMBERS = "members"  # of an object
    CHARACTERS = "characters"  # of a text, or of all texts and names in a value
    VALUES = "JSON values"  # in a value, at any depth
    CONTAINERS = "objects and arrays"  # in a value, at any depth
    LEVELS = "levels"  # of objects and arrays inside each other
    NUMBER = "number"  # the value itself
    BYTES = "bytes"  # of a file
    PIXELS = "pixels"  # of a picture
    PAGES = "pages"  # of a document
    PROPERTIES = "properties"  # of a JSON schema, at any depth
    ENUM_VALUES = "enum values"  # of a JSON schema, at any depth


@dataclass(eq=False, slots=True)
class FieldLimit:
    """A row of the table: the unit, fields, and the accepted number. Only `configure` changes it:
    `value` is the limit in this process."""

    counted: Counted
    name: str
    fields: str  # for the documents, in Markdown
    default: int
    source: str = ""  # the source of the number if it is another system's
    value: int = field(init=False)

    def __post_init__(self) -> None:
        self.value = self.default

    @property
    def setting(self) -> str:
        """The environment variable that replaces the default."""
        return f"VINERY_MAX_{self.name.upper()}"

    @property
    def most(self) -> int:
        return _MOST_LEVELS if self.counted is Counted.LEVELS else max(1000 * self.default, 10**6)

    def sentence(self, size: int) -> str:
        """Return what a client must change about a field of `size`, without the field's name."""
        if self.counted is Counted.NUMBER:
            return f"must be at most {self.value}"
        return (
            f"must have at most {self.value} {self.counted.value}, but has {size}. Send fewer, or "
            f"ask the administrator to raise {self.setting}"
        )


# Encoders and templates recurse into nested values, so no setting may allow much more.
_MOST_LEVELS: Final = 200

_entries, _members = partial(FieldLimit, Counted.ENTRIES), partial(FieldLimit, Counted.MEMBERS)
_chars, _values = partial(FieldLimit, Counted.CHARACTERS), partial(FieldLimit, Counted.VALUES)
_number = partial(FieldLimit, Counted.NUMBER)

# -- The body ---------------------------------------------------------------------------------

JSON_LEVELS: Final = FieldLimit(Counted.LEVELS, "json_levels", "the body, and JSON in a text", 100)
JSON_CONTAINERS: Final = FieldLimit(
    Counted.CONTAINERS,
    "json_containers",
    "the body with its unknown fields, and JSON in a text",
    100_000,
)
JSON_MEMBERS: Final = _members(
    "json_members",
    "all objects of the body with its unknown fields, and of JSON in a text",
    200_000,
)
JSON_VALUES: Final = _values(
    "json_values", "the body with its unknown fields, and JSON in a text", 2_000_000
)

# -- Prompts ------------------------------------------------------------------------------------

TEXT: Final = _chars(
    "text_chars",
    "each text, and all texts of a prompt together: messages, reasoning, tools, calls, "
    "documents, `prompt`, `suffix`",
    4_000_000,
)
PROMPTS: Final = _entries("prompts", "`prompt`, `text`", 2048)
ANSWERS: Final = _number("request_answers", "prompts times `n`", 2048)
CHOICES: Final = _number("n", "`n`, `best_of`", 128, "OpenAI")
PROMPT_IDS: Final = _entries(
    "prompt_ids", "`prompt` and `messages` of token ids, `prompt_token_ids`, `tokens`", 1_000_000
)
MESSAGES: Final = _entries("messages", "`messages`", 2048, "OpenAI")
INPUT_ITEMS: Final = _entries("input_items", "`input`", 8192)
PARTS: Final = _entries("parts", "`content`, `output`, and `summary` of a message or item", 2048)
MEDIA: Final = _entries("media", "pictures, videos and files of all messages together", 64)
MEDIA_BYTES: Final = FieldLimit(
    Counted.BYTES, "media_bytes", "each picture, video and file in a data URL, decoded", 20 * 2**20
)
MEDIA_PIXELS: Final = FieldLimit(
    Counted.PIXELS,
    "media_pixels",
    "each picture, and each frame and page of other media, before they are scaled",
    40_000_000,
)
MEDIA_PAGES: Final = FieldLimit(Counted.PAGES, "media_pages", "each PDF file", 20)
URL: Final = _chars("url_chars", "each URL and path of media", 8192)
FILENAME: Final = _chars("filename_chars", "`filename` of a file", 255)
TOOL_CALLS: Final = _entries("tool_calls", "`tool_calls` of a message", 128, "OpenAI")
ARGUMENTS: Final = _chars("arguments_chars", "`arguments` of a call", 1_000_000)
IDENTIFIER: Final = _chars(
    "identifier_chars",
    "`name`, `id`, `call_id` and `tool_call_id` of messages and items; `user`, "
    "`prompt_cache_key`, `service_tier`",
    1024,
)
TEMPLATE: Final = _chars("template_chars", "`chat_template`", 100_000)
DOCUMENTS: Final = _entries("documents", "`documents`", 1024)
ARGS_MEMBERS: Final = _members(
    "args_members", "`chat_template_kwargs`, `logits_processors_args`, `vllm_xargs`", 128
)
ARGS_VALUES: Final = _values(
    "args_values", "`chat_template_kwargs`, `logits_processors_args`, `vllm_xargs`", 10_000
)
ARGS_CHARS: Final = _chars(
    "args_chars", "`chat_template_kwargs`, `logits_processors_args`, `vllm_xargs`", 100_000
)

# -- Tools and formats ------------------------------------------------------------------------

TOOLS: Final = _entries("tools", "`tools`, `functions`, and `tools` of a namespace", 128, "OpenAI")
FUNCTIONS: Final = _entries("functions", "`tools` with those in all namespaces", 512)
TOOLS_CHARS: Final = _chars(
    "tools_chars", "`tools`: all names, descriptions, schemas and grammars together", 1_000_000
)
DESCRIPTION: Final = _chars(
    "description_chars", "`description` of a tool, a namespace or a schema", 100_000
)
ALLOWED_TOOLS: Final = _entries("allowed_tools", "`tool_choice.allowed_tools.tools`", 512)
SCHEMA_PROPERTIES: Final = FieldLimit(
    Counted.PROPERTIES, "schema_properties", "a JSON schema", 5000, "OpenAI"
)
# OpenAI's is 1,000. Here thousands of values take as long as a hundred properties.
SCHEMA_ENUM_VALUES: Final = FieldLimit(
    Counted.ENUM_VALUES, "schema_enum_values", "a JSON schema", 5000
)
SCHEMA_NAMES: Final = _chars(
    "schema_name_chars",
    "a JSON schema: names of properties and definitions, and values of `enum` and `const`",
    120_000,
    "OpenAI",
)
SCHEMA_VALUES: Final = _values("schema_values", "a JSON schema or a structural tag", 50_000)
SCHEMA_CHARS: Final = _chars(
    "schema_chars", "a JSON schema or a structural tag, as JSON", 1_000_000
)
GRAMMAR: Final = _chars("grammar_chars", "`guided_grammar`, `structured_outputs.grammar`", 100_000)
# People do not write longer patterns and grammars by hand, and their automata are slow to build.
PATTERN: Final = _chars(
    "pattern_chars",
    "each regular expression: `guided_regex`, `structured_outputs.regex`, `definition` of a "
    "custom tool, `pattern` of a JSON schema",
    2000,
)
LARK: Final = _chars("lark_chars", "`definition` of a custom tool's Lark grammar", 20_000)
CHOICE: Final = _entries("choice", "`guided_choice`, `structured_outputs.choice`", 5000)
CHOICE_CHARS: Final = _chars(
    "choice_chars", "each text of `guided_choice` and `structured_outputs.choice`", 10_000
)

# -- Tokens and ends --------------------------------------------------------------------------

STOPS_V1: Final = _entries("stops_v1", "`stop` on /v1", 4, "OpenAI")
STOPS_V3: Final = _entries("stops_v3", "`stop` on /v3", 16, "OpenVINO Model Server")
STOP_CHARS: Final = _chars("stop_chars", "each text of `stop`", 256)
STOP_IDS: Final = _entries("stop_ids", "`stop_token_ids`", 1000)
# Each token is compared with so many before it. vLLM has no limit; this is more than a paragraph.
PATTERN_TOKENS: Final = _number(
    "pattern_tokens", "`max_pattern_size` and `min_pattern_size` of `repetition_detection`", 1024
)
LOGIT_BIAS: Final = _members("logit_bias", "`logit_bias`", 300, "OpenAI")
BAD_WORDS: Final = _entries("bad_words", "`bad_words`", 300)
BAD_WORD_CHARS: Final = _chars("bad_word_chars", "each text of `bad_words`", 256)
BAD_WORD_SEQUENCES: Final = _entries("bad_word_sequences", "`bad_words_token_ids`", 1000)
BAD_WORD_IDS: Final = _entries("bad_word_ids", "each sequence of `bad_words_token_ids`", 64)
ALLOWED_IDS: Final = _entries("allowed_ids", "`allowed_token_ids`", 50_000)
LOGPROB_IDS: Final = _entries("logprob_ids", "`logprob_token_ids`", 128)

# -- Data about the request -------------------------------------------------------------------

METADATA: Final = _members("metadata", "`metadata`", 16, "OpenAI")
METADATA_KEY: Final = _chars("metadata_key_chars", "each key of `metadata`", 64, "OpenAI")
METADATA_VALUE: Final = _chars("metadata_value_chars", "each value of `metadata`", 512, "OpenAI")
MODEL_NAME: Final = _chars("model_chars", "`model`", 255)
SAFETY_IDENTIFIER: Final = _chars("safety_identifier_chars", "`safety_identifier`", 128)
REQUEST_ID: Final = _chars("request_id_chars", "`request_id`", 128)
CACHE_SALT: Final = _chars("cache_salt_chars", "`cache_salt`", 1024, "vLLM")
INCLUDE: Final = _entries("include", "`include`", 64)

FIELD_LIMITS: Final = tuple(
    value for value in list(globals().values()) if isinstance(value, FieldLimit)
)


def configure(values: Mapping[str, int]) -> None:
    """Set the limits of this process, by the names of their rows. Raises `KeyError`."""
    known = {limit.name for limit in FIELD_LIMITS}
    for name in values:
        if name not in known:
            raise KeyError(name)
    for limit in FIELD_LIMITS:
        limit.value = values.get(limit.name, limit.default)


def configured() -> Mapping[str, int]:
    return {limit.name: limit.value for limit in FIELD_LIMITS}
