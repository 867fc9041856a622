"""Whole conversations: how often each ability is practised and how a talk is put together.

`conversation(rng)` returns one. The same seed gives the same conversation on every machine, and
the answer can always be found in the prompt or in `training.facts`, except for `chance`.
"""

from collections.abc import Callable, Mapping
from random import Random

from training import words
from training.calls import are_alike, one_call, two_calls
from training.dialogue import Conversation, Exchange, Function, Json, SchemaStyle
from training.talk import (
    chance,
    counting,
    fact,
    forgotten,
    json_answer,
    memory,
    obedience,
    repeat,
    sums,
    toolless,
    unknown,
)
from training.toolbox import TOOL_TASKS

# What can stand before any question: it leaves nothing to remember and needs no function.
EARLIER: tuple[Callable[[Random], Exchange], ...] = (fact, fact, repeat, sums, unknown, json_answer)
KINDS: Mapping[Callable[[Random], Exchange], float] = {
    fact: 14,
    unknown: 5,
    toolless: 1.5,
    repeat: 15,
    counting: 10,
    sums: 6,
    chance: 2,
    memory: 11,
    forgotten: 0.7,
    obedience: 3.5,
    json_answer: 8,
    one_call: 14,
    two_calls: 8,
}
SYSTEM_PROMPTS = (
    *("", "", "", "", "You are a helpful assistant.", "You are a helpful assistant."),
    *("Be brief.", "Answer the user's questions.", "You are a helpful assistant. Be brief."),
)
NO_TOOL_THOUGHT = "No tool helps here."


def exchange(rng: Random) -> Exchange:
    """One exchange of any kind, the weak and the useful kinds more often."""
    (make,) = rng.choices(list(KINDS), weights=list(KINDS.values()))
    return make(rng)


def conversation(rng: Random) -> Conversation:
    """One conversation: earlier turns, a system prompt, tools and reasoning, each perhaps."""
    last = exchange(rng)
    earlier: list[Exchange] = []
    if rng.random() < 0.33:
        num_earlier = rng.choice((1, 1, 1, 2, 2, 3, 4, 6))
        earlier = [rng.choice(EARLIER)(rng) for _ in range(num_earlier)]
    if not (last.functions or last.is_toolless) and rng.random() < 0.06:
        earlier.append(one_call(rng))
    messages = [m for item in (*earlier, last) for m in item.messages]
    system = last.system or _system(rng)
    if system:
        messages.insert(0, {"role": "system", "content": system})
    functions = [f for item in (*earlier, last) for f in item.functions]
    tools = None if last.is_toolless else _tools(rng, functions)
    kind, thought = last.kind, last.thought
    if tools and not last.functions:
        kind = f"no call: {kind}"
        thought = f"{NO_TOOL_THOUGHT} {thought}"
    is_thinking = rng.random() < 0.3
    return Conversation(kind, tuple(messages), tools, thought if is_thinking else None)


def _system(rng: Random) -> str:
    """A system prompt that decides nothing, or none."""
    prompt = rng.choice(SYSTEM_PROMPTS)
    if rng.random() < 0.08:
        prompt = f"{prompt} {words.punctuated(rng, 4, 25)}".strip()
    return prompt


def _tools(rng: Random, needed: list[Function]) -> tuple[Json, ...] | None:
    """The needed functions among others, or None. Two of one name cannot be offered."""
    functions = {function.name: function for function in needed}
    num_others = rng.choice((0, 0, 1, 2)) if needed else rng.choice((1, 1, 2))
    if not needed and rng.random() > 0.18:
        return None
    for _ in range(num_others):
        other = rng.choice(TOOL_TASKS)(rng).function
        if not any(are_alike(other, function) for function in functions.values()):
            functions[other.name] = other
    style = SchemaStyle.pick(rng)
    declared = [style.declare(function) for function in functions.values()]
    rng.shuffle(declared)
    return tuple(declared)
