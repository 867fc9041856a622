"""How large the fields of a request may be: one table for the parsers, the documents and the
settings.

Each limit is checked before any work is done with its field. The defaults are OpenAI's where
OpenAI has a limit; the others are far above what clients send, and low enough that a request
of any fields costs little. The table is constant. `configure` sets the limits of this process
once, from its settings.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

# A label of a host, such as disk=fast.
HOST_LABEL: Final = r"[A-Za-z0-9_.-]{1,64}=[^\s,=]{1,253}"


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
    """A row of the table: fields, the unit, and the accepted number.

    Only `configure` changes it: `value` is the limit in this process.
    """

    name: str
    fields: str  # for the documents, in Markdown
    counted: Counted
    default: int
    # The source of the number if it is another system's.
    source: str = ""
    value: int = field(init=False)

    def __post_init__(self) -> None:
        self.value = self.default

    @property
    def setting(self) -> str:
        """The environment variable that replaces the default."""
        return f"VINERY_MAX_{self.name.upper()}"

    @property
    def most(self) -> int:
        """The largest value of the setting."""
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

# -- The body ---------------------------------------------------------------------------------

JSON_LEVELS: Final = FieldLimit("json_levels", "the body, and JSON in a text", Counted.LEVELS, 100)
JSON_CONTAINERS: Final = FieldLimit(
    "json_containers",
    "the body with its unknown fields, and JSON in a text",
    Counted.CONTAINERS,
    100_000,
)
JSON_MEMBERS: Final = FieldLimit(
    "json_members",
    "all objects of the body with its unknown fields, and of JSON in a text",
    Counted.MEMBERS,
    200_000,
)
JSON_VALUES: Final = FieldLimit(
    "json_values", "the body with its unknown fields, and JSON in a text", Counted.VALUES, 2_000_000
)

# -- Prompts ------------------------------------------------------------------------------------

TEXT: Final = FieldLimit(
    "text_chars",
    "each text, and all texts of a prompt together: messages, reasoning, tools, calls, "
    "documents, `prompt`, `suffix`",
    Counted.CHARACTERS,
    4_000_000,
)
PROMPTS: Final = FieldLimit("prompts", "`prompt`, `text`", Counted.ENTRIES, 2048)
ANSWERS: Final = FieldLimit("request_answers", "prompts times `n`", Counted.NUMBER, 2048)
CHOICES: Final = FieldLimit("n", "`n`, `best_of`", Counted.NUMBER, 128, "OpenAI")
PROMPT_IDS: Final = FieldLimit(
    "prompt_ids",
    "`prompt` and `messages` of token ids, `prompt_token_ids`, `tokens`",
    Counted.ENTRIES,
    1_000_000,
)
MESSAGES: Final = FieldLimit("messages", "`messages`", Counted.ENTRIES, 2048, "OpenAI")
INPUT_ITEMS: Final = FieldLimit("input_items", "`input`", Counted.ENTRIES, 8192)
PARTS: Final = FieldLimit(
    "parts", "`content`, `output`, and `summary` of a message or item", Counted.ENTRIES, 2048
)
MEDIA: Final = FieldLimit(
    "media", "pictures, videos and files of all messages together", Counted.ENTRIES, 64
)
MEDIA_BYTES: Final = FieldLimit(
    "media_bytes", "each picture, video and file in a data URL, decoded", Counted.BYTES, 20 * 2**20
)
MEDIA_PIXELS: Final = FieldLimit(
    "media_pixels",
    "each picture, and each frame and page of other media, before they are scaled",
    Counted.PIXELS,
    40_000_000,
)
MEDIA_PAGES: Final = FieldLimit("media_pages", "each PDF file", Counted.PAGES, 20)
URL: Final = FieldLimit("url_chars", "each URL and path of media", Counted.CHARACTERS, 8192)
FILENAME: Final = FieldLimit("filename_chars", "`filename` of a file", Counted.CHARACTERS, 255)
TOOL_CALLS: Final = FieldLimit(
    "tool_calls", "`tool_calls` of a message", Counted.ENTRIES, 128, "OpenAI"
)
ARGUMENTS: Final = FieldLimit(
    "arguments_chars", "`arguments` of a call", Counted.CHARACTERS, 1_000_000
)
IDENTIFIER: Final = FieldLimit(
    "identifier_chars",
    "`name`, `id`, `call_id` and `tool_call_id` of messages and items; `user`, `session_id`, "
    "`prompt_cache_key`, `service_tier`",
    Counted.CHARACTERS,
    1024,
)
TEMPLATE: Final = FieldLimit("template_chars", "`chat_template`", Counted.CHARACTERS, 100_000)
DOCUMENTS: Final = FieldLimit("documents", "`documents`", Counted.ENTRIES, 1024)
ARGS_MEMBERS: Final = FieldLimit(
    "args_members",
    "`chat_template_kwargs`, `logits_processors_args`, `vllm_xargs`",
    Counted.MEMBERS,
    128,
)
ARGS_VALUES: Final = FieldLimit(
    "args_values",
    "`chat_template_kwargs`, `logits_processors_args`, `vllm_xargs`",
    Counted.VALUES,
    10_000,
)
ARGS_CHARS: Final = FieldLimit(
    "args_chars",
    "`chat_template_kwargs`, `logits_processors_args`, `vllm_xargs`",
    Counted.CHARACTERS,
    100_000,
)

# -- Tools and formats ------------------------------------------------------------------------

TOOLS: Final = FieldLimit(
    "tools", "`tools`, `functions`, and `tools` of a namespace", Counted.ENTRIES, 128, "OpenAI"
)
FUNCTIONS: Final = FieldLimit(
    "functions", "`tools` with those in all namespaces", Counted.ENTRIES, 512
)
TOOLS_CHARS: Final = FieldLimit(
    "tools_chars",
    "`tools`: all names, descriptions, schemas and grammars together",
    Counted.CHARACTERS,
    1_000_000,
)
DESCRIPTION: Final = FieldLimit(
    "description_chars",
    "`description` of a tool, a namespace or a schema",
    Counted.CHARACTERS,
    100_000,
)
ALLOWED_TOOLS: Final = FieldLimit(
    "allowed_tools", "`tool_choice.allowed_tools.tools`", Counted.ENTRIES, 512
)
SCHEMA_PROPERTIES: Final = FieldLimit(
    "schema_properties", "a JSON schema", Counted.PROPERTIES, 5000, "OpenAI"
)
# OpenAI's is 1,000. Here a choice among thousands of values takes as long as that among a hundred
# properties.
SCHEMA_ENUM_VALUES: Final = FieldLimit(
    "schema_enum_values", "a JSON schema", Counted.ENUM_VALUES, 5000
)
SCHEMA_NAMES: Final = FieldLimit(
    "schema_name_chars",
    "a JSON schema: names of properties and definitions, and values of `enum` and `const`",
    Counted.CHARACTERS,
    120_000,
    "OpenAI",
)
SCHEMA_VALUES: Final = FieldLimit(
    "schema_values", "a JSON schema or a structural tag", Counted.VALUES, 50_000
)
SCHEMA_CHARS: Final = FieldLimit(
    "schema_chars", "a JSON schema or a structural tag, as JSON", Counted.CHARACTERS, 1_000_000
)
GRAMMAR: Final = FieldLimit(
    "grammar_chars", "`guided_grammar`, `structured_outputs.grammar`", Counted.CHARACTERS, 100_000
)
# People do not write longer patterns and grammars by hand, and their automata are slow to build.
PATTERN: Final = FieldLimit(
    "pattern_chars",
    "each regular expression: `guided_regex`, `structured_outputs.regex`, `definition` of a "
    "custom tool, `pattern` of a JSON schema",
    Counted.CHARACTERS,
    2000,
)
LARK: Final = FieldLimit(
    "lark_chars", "`definition` of a custom tool's Lark grammar", Counted.CHARACTERS, 20_000
)
CHOICE: Final = FieldLimit(
    "choice", "`guided_choice`, `structured_outputs.choice`", Counted.ENTRIES, 5000
)
CHOICE_CHARS: Final = FieldLimit(
    "choice_chars",
    "each text of `guided_choice` and `structured_outputs.choice`",
    Counted.CHARACTERS,
    10_000,
)

# -- Tokens and ends --------------------------------------------------------------------------

STOPS_V1: Final = FieldLimit("stops_v1", "`stop` on /v1", Counted.ENTRIES, 4, "OpenAI")
STOPS_V3: Final = FieldLimit(
    "stops_v3", "`stop` on /v3", Counted.ENTRIES, 16, "OpenVINO Model Server"
)
STOP_CHARS: Final = FieldLimit("stop_chars", "each text of `stop`", Counted.CHARACTERS, 256)
STOP_IDS: Final = FieldLimit("stop_ids", "`stop_token_ids`", Counted.ENTRIES, 1000)
# Each token is compared with this many tokens before it. vLLM has no limit; this limit is longer
# than a paragraph.
PATTERN_TOKENS: Final = FieldLimit(
    "pattern_tokens",
    "`max_pattern_size` and `min_pattern_size` of `repetition_detection`",
    Counted.NUMBER,
    1024,
)
LOGIT_BIAS: Final = FieldLimit("logit_bias", "`logit_bias`", Counted.MEMBERS, 300, "OpenAI")
BAD_WORDS: Final = FieldLimit("bad_words", "`bad_words`", Counted.ENTRIES, 300)
BAD_WORD_CHARS: Final = FieldLimit(
    "bad_word_chars", "each text of `bad_words`", Counted.CHARACTERS, 256
)
BAD_WORD_SEQUENCES: Final = FieldLimit(
    "bad_word_sequences", "`bad_words_token_ids`", Counted.ENTRIES, 1000
)
BAD_WORD_IDS: Final = FieldLimit(
    "bad_word_ids", "each sequence of `bad_words_token_ids`", Counted.ENTRIES, 64
)
ALLOWED_IDS: Final = FieldLimit("allowed_ids", "`allowed_token_ids`", Counted.ENTRIES, 50_000)
LOGPROB_IDS: Final = FieldLimit("logprob_ids", "`logprob_token_ids`", Counted.ENTRIES, 128)

# -- Data about the request -------------------------------------------------------------------

METADATA: Final = FieldLimit("metadata", "`metadata`", Counted.MEMBERS, 16, "OpenAI")
METADATA_KEY: Final = FieldLimit(
    "metadata_key_chars", "each key of `metadata`", Counted.CHARACTERS, 64, "OpenAI"
)
METADATA_VALUE: Final = FieldLimit(
    "metadata_value_chars", "each value of `metadata`", Counted.CHARACTERS, 512, "OpenAI"
)
MODEL_NAME: Final = FieldLimit("model_chars", "`model`", Counted.CHARACTERS, 255)
SAFETY_IDENTIFIER: Final = FieldLimit(
    "safety_identifier_chars", "`safety_identifier`", Counted.CHARACTERS, 128
)
REQUEST_ID: Final = FieldLimit("request_id_chars", "`request_id`", Counted.CHARACTERS, 128)
CACHE_SALT: Final = FieldLimit("cache_salt_chars", "`cache_salt`", Counted.CHARACTERS, 1024, "vLLM")
INCLUDE: Final = FieldLimit("include", "`include`", Counted.ENTRIES, 64)

FIELD_LIMITS: Final = tuple(
    value for value in list(globals().values()) if isinstance(value, FieldLimit)
)


def configure(values: Mapping[str, int]) -> None:
    """Set the limits of this process, by the names of their rows. Raises `KeyError` for an
    unknown name."""
    known = {limit.name for limit in FIELD_LIMITS}
    for name in values:
        if name not in known:
            raise KeyError(name)
    for limit in FIELD_LIMITS:
        limit.value = values.get(limit.name, limit.default)


def configured() -> Mapping[str, int]:
    return {limit.name: limit.value for limit in FIELD_LIMITS}
