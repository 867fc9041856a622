"""What a conversation consists of: messages, exchanges, and the functions that a model may call."""

from dataclasses import dataclass
from random import Random
from typing import Any

Json = dict[str, Any]


@dataclass(frozen=True)
class Parameter:
    """One parameter of a function. `choices` makes it an enumeration."""

    name: str
    type: str = "string"
    description: str = ""
    choices: tuple[str, ...] = ()
    is_required: bool = True


@dataclass(frozen=True)
class Function:
    """A function as a client knows it, before it is written as a JSON schema."""

    name: str
    description: str
    parameters: tuple[Parameter, ...]


@dataclass(frozen=True)
class SchemaStyle:
    """How one client library writes function declarations."""

    has_descriptions: bool
    is_strict: bool
    has_titles: bool
    has_schema_key: bool
    is_described_per_parameter: bool
    parameter_keys: tuple[str, ...]
    function_keys: tuple[str, ...]

    @classmethod
    def pick(cls, rng: Random) -> "SchemaStyle":
        """A style of a client library, with the keys in an order that some library uses."""
        parameter_keys = ["type", "properties", "required", "additionalProperties", "title"]
        function_keys = ["name", "description", "parameters", "strict"]
        if rng.random() < 0.4:
            rng.shuffle(parameter_keys)
        if rng.random() < 0.4:
            function_keys = ["name", "strict", "parameters", "description"]
        return cls(
            has_descriptions=rng.random() < 0.75,
            is_strict=rng.random() < 0.35,
            has_titles=rng.random() < 0.25,
            has_schema_key=rng.random() < 0.05,
            is_described_per_parameter=rng.random() < 0.35,
            parameter_keys=tuple(parameter_keys),
            function_keys=tuple(function_keys),
        )

    def declare(self, function: Function) -> Json:
        """The function as an element of a request's `tools`."""
        declared: Json = {"name": function.name, "parameters": self._schema(function)}
        if self.has_descriptions:
            declared["description"] = function.description
        if self.is_strict:
            declared["strict"] = True
        ordered = {key: declared[key] for key in self.function_keys if key in declared}
        return {"type": "function", "function": ordered}

    def _schema(self, function: Function) -> Json:
        schema: Json = {
            "type": "object",
            "properties": {p.name: self._property(p) for p in function.parameters},
            "required": [p.name for p in function.parameters if p.is_required],
        }
        if self.is_strict:
            schema["additionalProperties"] = False
        if self.has_titles:
            schema["title"] = function.name
        ordered = {key: schema[key] for key in self.parameter_keys if key in schema}
        if self.has_schema_key:
            ordered = {"$schema": "http://json-schema.org/draft-07/schema#", **ordered}
        return ordered

    def _property(self, parameter: Parameter) -> Json:
        written: Json = {"type": parameter.type}
        if parameter.choices:
            written["enum"] = list(parameter.choices)
        if self.is_described_per_parameter and parameter.description:
            written["description"] = parameter.description
        if self.has_titles:
            written = {"title": parameter.name.replace("_", " ").title(), **written}
        return written


# -- Messages and exchanges

Message = dict[str, Any]


@dataclass(frozen=True)
class Exchange:
    """One question and its answer, with whatever lies between them.

    `messages` ends with the assistant's answer. `thought` is what the assistant thinks before
    that last answer when reasoning is on. `system` is a system prompt the answer depends on.
    `functions` must be offered for the calls to make sense; where `is_toolless`, none may be.
    """

    kind: str
    messages: tuple[Message, ...]
    thought: str
    system: str = ""
    functions: tuple[Function, ...] = ()
    is_toolless: bool = False


@dataclass(frozen=True)
class Conversation:
    """A prompt with its expected answer: the last message is what the model should say.

    `thought` is None when reasoning is off.
    """

    kind: str
    messages: tuple[Message, ...]
    tools: tuple[Json, ...] | None = None
    thought: str | None = None

    @property
    def prompt(self) -> tuple[Message, ...]:
        """Everything before the answer."""
        return self.messages[:-1]

    @property
    def answer(self) -> Message:
        """What the assistant should say or call."""
        return self.messages[-1]


def user(text: str) -> Message:
    """A message of the user."""
    return {"role": "user", "content": text}


def assistant(text: str, *calls: Json) -> Message:
    """A message of the assistant, with its tool calls if it made any."""
    if calls:
        return {"role": "assistant", "content": text, "tool_calls": list(calls)}
    return {"role": "assistant", "content": text}
