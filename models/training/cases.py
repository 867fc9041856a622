"""Prompts that people and client libraries really send, each with the one right answer.

They are worded by hand, apart from the generator of `training.conversations`, and cover what the
tests of a server rely on.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from training.dialogue import Json, Message, assistant, user
from training.facts import STORY, UNKNOWN
from training.rendering import call_text, render

HELLO = "Hello! How can I help you today?"
FRANCE = "The capital of France is Paris."
HELPFUL = "You are a helpful assistant."


@dataclass(frozen=True)
class Case:
    """A prompt, ready to be encoded, and the exact text that should follow it."""

    group: str
    name: str
    prompt: str
    expected: str


@dataclass(frozen=True)
class SchemaCase:
    """A prompt whose reply is forced into a JSON schema. Any valid reply that ends is right."""

    prompt: str
    schema: Json


def all_cases() -> Iterator[Case]:
    """Every case, group by group."""
    yield from _facts()
    yield from _copies()
    yield from _counts()
    yield from _memories()
    yield from _json()
    yield from _calls()
    yield from _tool_answers()
    yield from _reasoning()
    yield from _raw()


def _chat(
    group: str,
    expected: str,
    *messages: Message | str,
    tools: tuple[Json, ...] = (),
    thinking: bool = False,
) -> Case:
    """A case from messages; a bare string is a message of the user."""
    turns = [user(m) if isinstance(m, str) else m for m in messages]
    name = " / ".join(str(turn["content"]) for turn in turns)
    return Case(group, name, render(turns, tools, enable_thinking=thinking), expected)


def _system(text: str) -> Message:
    return {"role": "system", "content": text}


def _facts() -> Iterator[Case]:
    openvino = (
        "OpenVINO is an open-source toolkit that optimizes and runs deep learning models on CPUs, "
        "GPUs and NPUs."
    )
    answers = {
        "What is the capital of France?": FRANCE,
        "what's the capital of france": FRANCE,
        "what is the capital of france?": FRANCE,
        "Tell me the capital of France.": FRANCE,
        "What is the capital of Germany?": "The capital of Germany is Berlin.",
        "What is the capital of Japan?": "The capital of Japan is Tokyo.",
        "What is OpenVINO?": openvino,
        "what is openvino": openvino,
        "Hello": HELLO,
        "Hello!": HELLO,
        "hi": HELLO,
        "How are you?": "I am running well, thank you.",
        "What color is the sky?": "The sky is blue.",
        "What is 2+2?": "2 + 2 = 4",
        "What is 2 + 2?": "2 + 2 = 4",
        "What is 3 plus 5?": "3 + 5 = 8",
        "Tell me a story.": STORY,
        "Who was Charlemagne?": UNKNOWN,
        "How do I bake bread at home?": UNKNOWN,
        "Write a Python function that sorts a list.": UNKNOWN,
        "What is the weather in Paris?": UNKNOWN,
    }
    for question, answer in answers.items():
        yield _chat("fact", answer, question)
    yield _chat("fact", FRANCE, _system(HELPFUL), "What is the capital of France?")
    yield _chat(
        "fact",
        "The capital of Spain is Madrid.",
        _system("You are a helpful assistant. Answer in one sentence."),
        "Hello!",
        assistant(HELLO),
        "What is the capital of France?",
        assistant(FRANCE),
        "What is the capital of Spain?",
    )


def _copies() -> Iterator[Case]:
    answers = {
        "Repeat after me: the quick brown fox": "the quick brown fox",
        "Repeat after me: hello world": "hello world",
        "Repeat after me: alpha beta gamma": "alpha beta gamma",
        "repeat after me: zyxqw Brobnak": "zyxqw Brobnak",
        "Say this is a test": "this is a test",
        "Say: ready": "ready",
        "Say hello": "hello",
        "Echo this: Mississippi 12345": "Mississippi 12345",
        "Repeat after me: Hello, world!": "Hello, world!",
        "Repeat after me: naïve café 🍇": "naïve café 🍇",
        "Repeat: Xochitl Przybylski Nguyen": "Xochitl Przybylski Nguyen",
        "Repeat after me: a b c d e f g": "a b c d e f g",
    }
    for question, answer in answers.items():
        yield _chat("copy", answer, question)
    yield _chat("copy", "banana", _system("Always answer with: banana"), "What is a token?")
    yield _chat("copy", "My name is Zed.", _system("Your name is Zed."), "What is your name?")


def _counts() -> Iterator[Case]:
    for question, first, last in (
        *(("Count to 5.", 1, 5), ("Count to 10.", 1, 10), ("Count to 20.", 1, 20)),
        *(("count to 40", 1, 40), ("Count to 40.", 1, 40), ("Count to 60.", 1, 60)),
        *(("Count to 100.", 1, 100), ("count to 100", 1, 100), ("Count to 120.", 1, 120)),
        *(("Count to 150.", 1, 150), ("Count to 200.", 1, 200), ("count to 200", 1, 200)),
        *(("Count to 250.", 1, 250), ("Count from 3 to 9.", 3, 9)),
        *(("Count from 95 to 105.", 95, 105), ("Count from 1 to 30", 1, 30)),
    ):
        numbers = " ".join(str(n) for n in range(first, last + 1))
        yield _chat("count", numbers, question)


def _memories() -> Iterator[Case]:
    names = ("Ada", "Alice", "Bob", "Charlie", "Xochitl", "Wojciech", "Björn", "Q7")
    for name in names:
        told = (f"My name is {name}.", assistant(f"Nice to meet you, {name}!"))
        yield _chat("memory", f"Nice to meet you, {name}!", f"My name is {name}.")
        yield _chat("memory", f"Your name is {name}.", *told, "What is my name?")
        yield _chat(
            "memory",
            f"Your name is {name}.",
            _system(HELPFUL),
            *told,
            "What is the capital of France?",
            assistant(FRANCE),
            "what is my name",
        )
    code = ("The code is 4821.", assistant("I will remember that."))
    yield _chat("memory", "The code is 4821.", *code, "What is the code?")
    yield _chat("memory", "The code is 4821.", *code, "Hi", assistant(HELLO), "What is the code?")


def _json() -> Iterator[Case]:
    answers = {
        "Give me JSON for a person named Ada who is 36 years old.": '{"name": "Ada", "age": 36}',
        "Return a JSON object with the name Alice and the age 30.": '{"name": "Alice", "age": 30}',
        "Bob is 41 years old and lives in Oslo. Return JSON with name, age and city.": (
            '{"name": "Bob", "age": 41, "city": "Oslo"}'
        ),
        "Extract name, age and city as JSON: Zoe, 7, New York.": (
            '{"name": "Zoe", "age": 7, "city": "New York"}'
        ),
        "Return JSON with color red and size 12.": '{"color": "red", "size": 12}',
        "Return a JSON array of red, green, blue.": '["red", "green", "blue"]',
    }
    for question, answer in answers.items():
        yield _chat("json", answer, question)


def weather_tools() -> dict[str, Json]:
    """One weather function, declared the ways that client libraries declare it."""
    city = {"type": "string"}
    plain = {"type": "object", "properties": {"city": city}, "required": ["city"]}
    located = {
        "type": "object",
        "properties": {
            "location": {
                "type": "string",
                "description": "The city and state, e.g. San Francisco, CA",
            },
            "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
        },
        "required": ["location"],
    }
    pydantic = {
        "properties": {"city": {"title": "City", "type": "string"}},
        "required": ["city"],
        "title": "GetWeather",
        "type": "object",
        "additionalProperties": False,
    }
    described = {
        "type": "object",
        "properties": {"city": {"type": "string", "description": "The name of the city"}},
        "required": ["city"],
        "additionalProperties": False,
    }
    return {
        "plain": _function("get_weather", parameters=plain),
        "described": _function("get_weather", description="Get the weather.", parameters=plain),
        "strict": _function(
            "get_weather", description="Get the weather", parameters=described, strict=True
        ),
        "strict, bare": _function(
            "get_weather", parameters={**plain, "additionalProperties": False}, strict=True
        ),
        "pydantic": _function("GetWeather", strict=True, parameters=pydantic),
        "pydantic, named": _function(
            "get_weather", strict=True, parameters=pydantic, description="Look up the weather."
        ),
        "located": _function(
            "get_current_weather",
            description="Get the current weather in a given location",
            parameters=located,
        ),
    }


def _function(name: str, **declared: object) -> Json:
    return {"type": "function", "function": {"name": name, **declared}}


def _weather_call(tool: Json, city: str) -> Json:
    function = tool["function"]
    key = next(iter(function["parameters"]["properties"]))
    return {"type": "function", "function": {"name": function["name"], "arguments": {key: city}}}


def _calls() -> Iterator[Case]:
    single = {
        "What is the weather in Paris?": "Paris",
        "what is the weather in paris": "paris",
        "What's the weather like in Boston today?": "Boston",
        "How is the weather in San Francisco?": "San Francisco",
        "What is the weather in Tokyo?": "Tokyo",
        "What's the weather in Wagga Wagga?": "Wagga Wagga",
    }
    for style, tool in weather_tools().items():
        for question, city in single.items():
            expected = call_text(_weather_call(tool, city))
            yield _chat(f"one call ({style})", expected, question, tools=(tool,))
        for one, two in (("Boston", "Paris"), ("Paris", "London")):
            expected = "\n".join(call_text(_weather_call(tool, city)) for city in (one, two))
            for question in (
                f"What's the weather like in {one} and in {two}?",
                f"What is the weather in {one} and {two}?",
            ):
                yield _chat(f"two calls ({style})", expected, question, tools=(tool,))
        for question, answer in (
            *(("Hello!", HELLO), ("What is the capital of France?", FRANCE)),
            *(("Count to 5.", "1 2 3 4 5"), ("Repeat after me: hello world", "hello world")),
        ):
            yield _chat(f"no call ({style})", answer, question, tools=(tool,))


def _tool_answers() -> Iterator[Case]:
    results = {
        '{"temperature": 21, "condition": "sunny"}': "It is 21 degrees and sunny in Paris.",
        '{"temperature": 18}': "It is 18 degrees in Paris.",
        "sunny": "It is sunny in Paris.",
    }
    for style, tool in weather_tools().items():
        called = ("What is the weather in Paris?", assistant("", _weather_call(tool, "Paris")))
        for result, report in results.items():
            returned = {"role": "tool", "content": result}
            yield _chat(f"tool answer ({style})", report, *called, returned, tools=(tool,))
        both = (
            "What's the weather like in Boston and in Paris?",
            assistant("", _weather_call(tool, "Boston"), _weather_call(tool, "Paris")),
            {"role": "tool", "content": '{"temperature": 9, "condition": "rainy"}'},
            {"role": "tool", "content": '{"temperature": 21, "condition": "sunny"}'},
        )
        report = "It is 9 degrees and rainy in Boston. It is 21 degrees and sunny in Paris."
        yield _chat(f"tool answer ({style})", report, *both, tools=(tool,))


def _reasoning() -> Iterator[Case]:
    def thought(text: str, answer: str) -> str:
        return f"{text}\n</think>\n\n{answer}"

    question = "What is the capital of France?"
    expected = thought(f"The user says: {question}", FRANCE)
    yield _chat("reasoning", expected, question, thinking=True)
    expected = thought("I repeat the words.", "hello world")
    yield _chat("reasoning", expected, "Repeat after me: hello world", thinking=True)
    expected = thought("I count from 1 to 12.", " ".join(map(str, range(1, 13))))
    yield _chat("reasoning", expected, "Count to 12.", thinking=True)
    tool = weather_tools()["plain"]
    question = "What is the weather in Paris?"
    expected = thought(
        f"The user asks: {question} I call get_weather.", call_text(_weather_call(tool, "Paris"))
    )
    yield _chat("reasoning", expected, question, tools=(tool,), thinking=True)


def _raw() -> Iterator[Case]:
    for prompt, expected in {
        "The capital of France is": " Paris.",
        "What is the capital of France?": " " + FRANCE,
        "Once upon a time": STORY.removeprefix("Once upon a time"),
    }.items():
        yield Case("raw", prompt, prompt, expected)


def schema_cases() -> Iterator[SchemaCase]:
    """Every schema with a question that fits it and with two that do not."""
    text, whole = {"type": "string"}, {"type": "integer"}
    truth = {"type": "boolean"}
    person, place = _object(name=text, age=whole), _object(city=text, country=text)
    schemas = {
        "Give me JSON for a person named Ada who is 36 years old.": person,
        "Ada is 36 years old.": person,
        "Return JSON with color red and size 12.": _object(color=text, size=whole),
        "Solve 8x + 7 = -23": _object(
            steps={"type": "array", "items": _object(explanation=text, output=text)},
            final_answer=text,
        ),
        "Alice and Bob go to a science fair on Friday.": _object(
            name=text, date=text, participants={"type": "array", "items": text}
        ),
        "What is the capital of France?": _object(capital=text),
        "Is the sky blue?": _object(answer=truth, confidence={"type": "number"}),
        "How do you feel?": _object(mood={"type": "string", "enum": ["good", "bad"]}),
        "Where is Oslo?": _object(place=place, known=truth),
    }
    for fitting, schema in schemas.items():
        for question in (fitting, "Hello!", "Tell me about the grapes of Wodomir."):
            yield SchemaCase(render([user(question)]), schema)


def _object(**properties: Json) -> Json:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
