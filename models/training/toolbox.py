"""Uses of functions: a question, the call that answers it, a result and its report.

A `ToolTask` is one use of one function. Names and parameters are varied, so that they have to be
read in the declaration.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from training import words
from training.dialogue import Function, Json, Parameter


@dataclass(frozen=True)
class ToolTask:
    """One use of one function. `request` has no mark at its end."""

    function: Function
    request: str
    mark: str
    arguments: Json
    result: str
    report: str

    @property
    def question(self) -> str:
        """The request as a sentence of its own."""
        return self.request + self.mark

    @property
    def call(self) -> Json:
        """The call in the shape of an assistant message's `tool_calls`."""
        return {
            "type": "function",
            "function": {"name": self.function.name, "arguments": self.arguments},
        }


CONDITIONS = ("sunny", "cloudy", "rainy", "windy", "snowy", "foggy")
PLACE_PARAMETERS = (
    Parameter("city", description="The city"),
    Parameter("city", description="Name of the city, for example Rome"),
    Parameter("location", description="The city and state, e.g. San Francisco, CA"),
    Parameter("location", description="City and country, for example Paris, France"),
    Parameter("place", description="Where"),
    Parameter("town", description="The name of the town"),
)
UNITS = ("celsius", "fahrenheit")


def _weather_result(rng: Random, city: str) -> tuple[str, str]:
    """What a weather function returned and the sentence that reports it."""
    degrees, condition = rng.randint(-20, 45), rng.choice(CONDITIONS)
    both = f"It is {degrees} degrees and {condition} in {city}."
    match rng.randint(0, 7):
        case 0:
            return json.dumps({"temperature": degrees}), f"It is {degrees} degrees in {city}."
        case 1:
            return json.dumps({"condition": condition}), f"It is {condition} in {city}."
        case 2:
            return condition, f"It is {condition} in {city}."
        case 3:
            return f"{degrees} degrees and {condition}", both
        case 4:
            unit = rng.choice(UNITS)
            returned: Json = {"city": city, "temperature": degrees, "unit": unit}
            return json.dumps(returned), f"It is {degrees} degrees {unit} in {city}."
        case 5:
            returned = {"city": city, "temperature": degrees, "condition": condition}
            return json.dumps(returned), both
        case _:
            return json.dumps({"temperature": degrees, "condition": condition}), both


def weather(rng: Random) -> ToolTask:
    """The weather of a place; sometimes the function also takes a unit."""
    name = rng.choice(
        (
            "get_weather",
            "get_weather",
            "weather",
            "get_current_weather",
            "fetch_weather",
            "weather_lookup",
            "getWeather",
            "GetWeather",
            "lookup_weather",
        )
    )
    where = rng.choice(PLACE_PARAMETERS)
    parameters: tuple[Parameter, ...] = (where,)
    city = words.place(rng)
    arguments: Json = {where.name: city}
    request, mark = rng.choice(
        (
            ("What is the weather in {city}", "?"),
            ("What is the weather in {city}", "?"),
            ("What's the weather in {city}", "?"),
            ("What's the weather like in {city}", "?"),
            ("What is the weather like in {city} today", "?"),
            ("How is the weather in {city}", "?"),
            ("How is the weather in {city} today", "?"),
            ("Is it raining in {city}", "?"),
            ("Tell me the weather for {city}", "."),
            ("Weather in {city}", "."),
            ("Weather in {city} please", ""),
            ("Get the weather for {city}", "."),
        )
    )
    if rng.random() < 0.25:
        unit = Parameter("unit", choices=UNITS, is_required=False, description="The unit to use")
        parameters = (where, unit)
        if rng.random() < 0.4:
            arguments["unit"] = rng.choice(UNITS)
            request = f"{request} in {arguments['unit']}"
    result, report = _weather_result(rng, city)
    function = Function(name, rng.choice(WEATHER_DESCRIPTIONS), parameters)
    return ToolTask(function, *_ask(rng, request, mark, city=city), arguments, result, report)


WEATHER_DESCRIPTIONS = (
    "Get the weather",
    "Get the current weather in a given location",
    "Get the weather of a city.",
    "Returns the current weather",
)


def time(rng: Random) -> ToolTask:
    """The time of day in a place."""
    name = rng.choice(("get_time", "current_time", "time_in", "clock", "get_current_time"))
    parameter = rng.choice((*PLACE_PARAMETERS, Parameter("timezone", description="The zone")))
    city = words.place(rng)
    clock = f"{rng.randint(0, 23):02d}:{rng.randint(0, 59):02d}"
    request, mark = rng.choice(
        (
            ("What time is it in {city}", "?"),
            ("Tell me the time in {city}", "."),
            ("What is the time in {city}", "?"),
            ("What is the current time in {city}", "?"),
        )
    )
    result = clock if rng.random() < 0.25 else json.dumps({"time": clock})
    return ToolTask(
        Function(name, "Get the time", (parameter,)),
        *_ask(rng, request, mark, city=city),
        {parameter.name: city},
        result,
        f"It is {clock} in {city}.",
    )


def arithmetic(rng: Random) -> ToolTask:
    """A sum or the like that the function works out; the model never does."""
    name, verb = rng.choice(
        (
            ("add", "Add"),
            ("sum", "Sum"),
            ("multiply", "Multiply"),
            ("subtract", "Subtract"),
            ("add_numbers", "Add"),
            ("multiply_numbers", "Multiply"),
        )
    )
    left, right = rng.choice((("a", "b"), ("x", "y"), ("first", "second")))
    kind = rng.choice(("integer", "integer", "number"))
    first, second, result = rng.randint(0, 999), rng.randint(0, 999), rng.randint(0, 99999)
    request, mark = rng.choice(
        (
            (f"{verb} {{first}} and {{second}}", "."),
            (f"Please {verb.lower()} {{first}} and {{second}}", "."),
            (f"Can you {verb.lower()} {{first}} and {{second}}", "?"),
        )
    )
    return ToolTask(
        Function(name, f"{verb} two numbers", (Parameter(left, kind), Parameter(right, kind))),
        *_ask(rng, request, mark, first=first, second=second),
        {left: first, right: second},
        str(result) if rng.random() < 0.4 else json.dumps({"result": result}),
        f"The result is {result}.",
    )


def search(rng: Random) -> ToolTask:
    """A search for some words."""
    name = rng.choice(("search", "web_search", "search_web", "find", "search_documents"))
    parameter = Parameter(rng.choice(("query", "q", "text")), description="What to look for")
    wanted, found = words.phrase(rng, 1, 5), words.phrase(rng, 2, 5)
    request = rng.choice(
        ("Search for {wanted}", "Find {wanted}", "Look up {wanted}", "Search the web for {wanted}")
    )
    return ToolTask(
        Function(name, "Search the web", (parameter,)),
        *_ask(rng, request, ".", wanted=wanted),
        {parameter.name: wanted},
        found if rng.random() < 0.3 else json.dumps({"answer": found}, ensure_ascii=False),
        f"I found this: {found}.",
    )


def message(rng: Random) -> ToolTask:
    """A message to a person."""
    name = rng.choice(("send_email", "send_message", "send_mail"))
    to, body = rng.choice((("to", "text"), ("recipient", "body"), ("to", "message")))
    recipient, text = words.person(rng), words.phrase(rng, 1, 5)
    request = rng.choice(
        (
            "Send {recipient} a message: {text}",
            "Write to {recipient}: {text}",
            "Tell {recipient} this: {text}",
        )
    )
    parameters = (
        Parameter(to, description="Who gets it"),
        Parameter(body, description="What it says"),
    )
    return ToolTask(
        Function(name, "Send a message", parameters),
        *_ask(rng, request, "", recipient=recipient, text=text),
        {to: recipient, body: text},
        rng.choice(('{"status": "sent"}', '{"status": "ok"}', "sent", "ok")),
        f"I sent the message to {recipient}.",
    )


def alarm(rng: Random) -> ToolTask:
    """An alarm at an hour and a minute."""
    hour, minute = rng.randint(0, 23), rng.randint(0, 59)
    request = rng.choice(("Set an alarm for {hour}:{minute}", "Wake me at {hour}:{minute}"))
    return ToolTask(
        Function(
            rng.choice(("set_alarm", "create_alarm", "set_timer")),
            "Set an alarm",
            (Parameter("hour", "integer"), Parameter("minute", "integer")),
        ),
        *_ask(rng, request, ".", hour=hour, minute=minute),
        {"hour": hour, "minute": minute},
        rng.choice(('{"status": "ok"}', "ok")),
        f"The alarm is set for {hour}:{minute}.",
    )


def temperature(rng: Random) -> ToolTask:
    """A room's temperature, with a unit out of an enumeration."""
    value, unit = rng.randint(10, 30), rng.choice(UNITS)
    return ToolTask(
        Function(
            "set_temperature",
            "Set the room temperature",
            (Parameter("value", "number"), Parameter("unit", choices=UNITS)),
        ),
        *_ask(rng, "Set the temperature to {value} degrees {unit}", ".", value=value, unit=unit),
        {"value": value, "unit": unit},
        rng.choice(('{"status": "ok"}', "ok")),
        f"The temperature is set to {value} degrees {unit}.",
    )


VERBS = ("get", "find", "open", "delete", "check", "update", "cancel", "book", "create", "show")
NOUNS = ("order", "user", "file", "ticket", "invoice", "room", "account", "flight", "page", "lamp")
RESULT_KEYS = ("status", "name", "price", "owner", "state", "count", "color", "answer")


def record(rng: Random) -> ToolTask:
    """Something done to a thing known by a number, a code or a name."""
    verb, noun = rng.choice(VERBS), rng.choice(NOUNS)
    takes_number = rng.random() < 0.4
    wanted: Any = words.code(rng) if rng.random() < 0.7 else words.invented(rng)
    if takes_number:
        wanted = rng.randint(0, 99999)
    parameter = Parameter(
        rng.choice((f"{noun}_id", "id", "name", noun, "number")),
        "integer" if takes_number else "string",
        description=f"The {noun}",
    )
    request, mark = rng.choice(
        (
            (f"{verb.capitalize()} {noun} {{wanted}}", "."),
            (f"Please {verb} {noun} {{wanted}}", "."),
            (f"Can you {verb} {noun} {{wanted}}", "?"),
            (f"{verb.capitalize()} the {noun} {{wanted}}", "."),
        )
    )
    key, value = rng.choice(RESULT_KEYS), rng.choice((words.word(rng), rng.randint(0, 9999)))
    name = rng.choice((f"{verb}_{noun}", f"{noun}_{verb}", f"{verb}{noun.capitalize()}"))
    return ToolTask(
        Function(name, f"{verb.capitalize()} a {noun}", (parameter,)),
        *_ask(rng, request, mark, wanted=wanted),
        {parameter.name: wanted},
        json.dumps({key: value}, ensure_ascii=False),
        f"The {key} is {value}.",
    )


def bare(rng: Random) -> ToolTask:
    """A function without parameters."""
    name, request, mark = rng.choice(
        (
            ("list_models", "List the models", "."),
            ("list_files", "List the files", "."),
            ("get_status", "Get the status", "."),
            ("get_date", "What is the date", "?"),
            ("get_user", "Which user is signed in", "?"),
            ("roll_dice", "Roll the dice with the tool", "."),
        )
    )
    key, value = rng.choice(RESULT_KEYS), words.word(rng)
    return ToolTask(
        Function(name, request, ()),
        *_ask(rng, request, mark),
        {},
        json.dumps({key: value}, ensure_ascii=False),
        f"The {key} is {value}.",
    )


TOOL_TASKS: tuple[Callable[[Random], ToolTask], ...] = (
    *(weather, weather, weather, time, arithmetic, search, message, alarm, temperature),
    *(record, record, bare),
)
PLACE_TASKS = (weather, time)


def _ask(rng: Random, request: str, mark: str, **content: object) -> tuple[str, str]:
    """The request filled in, and its closing mark, either as careless as people type."""
    if rng.random() < 0.2:
        request = request.lower()
    if rng.random() < 0.2:
        mark = ""
    return request.format(**content), mark
