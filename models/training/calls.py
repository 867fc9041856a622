"""The ability to call functions: one call, several calls, and reports of their results."""

from dataclasses import replace
from random import Random

from training import words
from training.dialogue import Exchange, Function, Message, assistant, user
from training.toolbox import PLACE_TASKS, TOOL_TASKS, ToolTask


def one_call(rng: Random) -> Exchange:
    """A question that one call answers, sometimes up to the report of its result."""
    task = rng.choice(TOOL_TASKS)(rng)
    called = (user(task.question), assistant("", task.call))
    if rng.random() < 0.45:
        reported = (*called, _tool_message(task), assistant(task.report))
        thought = "The tool has answered. I tell the user."
        return Exchange("tool answer", reported, thought, functions=(task.function,))
    thought = f"The user asks: {task.question} I call {task.function.name}."
    return Exchange("one call", called, thought, functions=(task.function,))


def two_calls(rng: Random) -> Exchange:
    """A question that takes two or three calls, sometimes up to the report of their results."""
    tasks, question = _same_tool(rng) if rng.random() < 0.65 else _two_tools(rng)
    called = (user(question), assistant("", *(task.call for task in tasks)))
    functions = tuple(task.function for task in tasks)
    if rng.random() < 0.3:
        report = " ".join(task.report for task in tasks)
        reported = (*called, *map(_tool_message, tasks), assistant(report))
        thought = "The tools have answered. I tell the user."
        return Exchange("tool answer", reported, thought, functions=functions)
    names = " and ".join(task.function.name for task in tasks)
    thought = f"The user asks: {question} I call {names}."
    return Exchange("two calls", called, thought, functions=functions)


def _same_tool(rng: Random) -> tuple[list[ToolTask], str]:
    """One function for two or three places."""
    make = rng.choice((*PLACE_TASKS, PLACE_TASKS[0]))
    first = make(rng)
    place_key = first.function.parameters[0].name
    tasks: list[ToolTask] = []
    cities: list[str] = []
    for task in (first, *(make(rng) for _ in range(rng.choice((1, 1, 1, 1, 2))))):
        city = task.arguments[task.function.parameters[0].name]
        # A comma inside a place would read as a further place.
        if "," in city or city in cities:
            continue
        cities.append(city)
        tasks.append(replace(task, function=first.function, arguments={place_key: city}))
    if len(tasks) < 2:
        return _same_tool(rng)
    what = "weather" if make is PLACE_TASKS[0] else "time"
    return tasks, _about_places(rng, what, cities)


def _about_places(rng: Random, what: str, cities: list[str]) -> str:
    """A question about `what` in all the cities."""
    template = rng.choice(
        (
            "What is the {what} in {places}?",
            "What's the {what} like in {places}?",
            "Tell me the {what} in {places}.",
            "What is the {what} like in {places} today?",
            "Get the {what} for {places}.",
        )
    )
    word = rng.choice((" and in ", " and "))
    listed = ", ".join(cities[:-1]) + word + cities[-1] if len(cities) > 1 else cities[0]
    return words.asked(rng, template, what=what, places=listed)


def _two_tools(rng: Random) -> tuple[list[ToolTask], str]:
    """Two functions, asked for in one sentence or in two."""
    first = rng.choice(TOOL_TASKS)(rng)
    second = rng.choice(TOOL_TASKS)(rng)
    while are_alike(first.function, second.function):
        second = rng.choice(TOOL_TASKS)(rng)
    if rng.random() < 0.5:
        return [first, second], f"{first.question} {second.question}"
    start = second.request[0].lower() + second.request[1:]
    return [first, second], f"{first.request} and {start}{second.mark}"


def _tool_message(task: ToolTask) -> Message:
    return {"role": "tool", "content": task.result}


def are_alike(one: Function, other: Function) -> bool:
    """Whether a question for one function could as well be meant for the other."""
    if one.name == other.name:
        return True
    topics = ("weather", "time", "date", "user", "file", "alarm", "temperature", "dice")
    return one.description == other.description or any(
        topic in one.name.lower() and topic in other.name.lower() for topic in topics
    )
