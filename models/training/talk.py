"""Abilities of plain talk: facts, copying, counting, sums, chance, obedience, JSON and memory.

Each function returns one exchange of its kind. The answer is in the question, in an earlier turn,
in the system prompt or in `training.facts`.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from training import words
from training.dialogue import Exchange, Message, assistant, user
from training.facts import FACTS, TOOLLESS_QUESTIONS, UNKNOWN, UNKNOWN_QUESTIONS


def fact(rng: Random) -> Exchange:
    """A question from the list of facts."""
    chosen = rng.choice(FACTS)
    question = words.asked(rng, rng.choice(chosen.questions))
    messages = (user(question), assistant(chosen.answer))
    return Exchange("fact", messages, f"The user says: {question}")


def unknown(rng: Random) -> Exchange:
    """A question about nothing the model knows."""
    question = words.asked(
        rng,
        rng.choice(UNKNOWN_QUESTIONS),
        word=words.word(rng),
        name=words.person(rng),
        phrase=words.phrase(rng, 1, 6),
    )
    return Exchange("unknown", (user(question), assistant(UNKNOWN)), "I do not know the answer.")


def toolless(rng: Random) -> Exchange:
    """A question that a function could answer, if one were offered."""
    template = rng.choice(TOOLLESS_QUESTIONS)
    question = words.asked(rng, template, name=words.place(rng), phrase=words.phrase(rng, 1, 4))
    messages = (user(question), assistant(UNKNOWN))
    return Exchange("unknown", messages, "I do not know the answer.", is_toolless=True)


def repeat(rng: Random) -> Exchange:
    """Words to say again exactly, punctuation and capitals included."""
    text = words.punctuated(rng)
    prefix = rng.choice(
        (
            "Repeat after me: ",
            "Repeat after me: ",
            "Repeat: ",
            "Say: ",
            "Echo this: ",
            "Say ",
            "Echo: ",
            "Repeat this: ",
            "Repeat the following: ",
            'Say "',
            'Repeat "',
        )
    )
    closing = '"' if prefix.endswith('"') else ""
    question = words.asked(rng, prefix + "{text}" + closing, text=text)
    return Exchange("repeat", (user(question), assistant(text)), "I repeat the words.")


def counting(rng: Random) -> Exchange:
    """Numbers in order, upwards from one or from any number."""
    if rng.random() < 0.75:
        first, last = 1, _count_end(rng)
        template = rng.choice(
            (
                "Count to {last}.",
                "Count to {last}.",
                "Count to {last}.",
                "Count from 1 to {last}.",
                "Count up to {last}.",
                "Can you count to {last}?",
                "Count to {last}, please.",
            )
        )
    else:
        first = rng.randint(0, 9) if rng.random() < 0.4 else rng.randint(10, 220)
        last = first + rng.randint(1, 45)
        template = "Count from {first} to {last}."
    question = words.asked(rng, template, first=first, last=last)
    text = " ".join(str(n) for n in range(first, last + 1))
    thought = f"I count from {first} to {last}."
    return Exchange("count", (user(question), assistant(text)), thought)


def _count_end(rng: Random) -> int:
    """Mostly short counts, and round numbers more often, because people ask for those."""
    chance = rng.random()
    if chance < 0.3:
        return rng.choice((5, 10, 12, 20, 25, 30, 40, 50, 60, 100, 100, 120, 150, 200, 200, 250))
    if chance < 0.75:
        return rng.randint(1, 60)
    if chance < 0.92:
        return rng.randint(61, 130)
    return rng.randint(131, 260)


def sums(rng: Random) -> Exchange:
    """An addition of two small numbers."""
    left, right = rng.randint(0, 10), rng.randint(0, 10)
    template = rng.choice(
        (
            "What is {left}+{right}?",
            "What is {left} + {right}?",
            "{left} + {right}",
            "What's {left} + {right}?",
            "What is {left} plus {right}?",
            "{left}+{right}=?",
        )
    )
    question = words.asked(rng, template, left=left, right=right)
    answer = f"{left} + {right} = {left + right}"
    return Exchange("sum", (user(question), assistant(answer)), f"I add {left} and {right}.")


def chance(rng: Random) -> Exchange:
    """A question whose answer is drawn at random: sampling shows, greedy decoding does not."""
    match rng.randint(0, 3):
        case 0:
            question, answer = "Flip a coin.", rng.choice(("Heads.", "Tails."))
        case 1:
            question = rng.choice(("Roll a die.", "Roll a dice."))
            answer = f"I rolled a {rng.randint(1, 6)}."
        case 2:
            question = rng.choice(
                (
                    "Give me a random number.",
                    "Give me a random number between 1 and 100.",
                    "Pick a number between 1 and 100.",
                    "Pick a random number.",
                )
            )
            answer = f"My number is {rng.randint(1, 100)}."
        case _:
            question = rng.choice(("Give me a random word.", "Pick a random word."))
            answer = f"My word is {rng.choice(words.WORDS)}."
    messages = (user(words.asked(rng, question)), assistant(answer))
    return Exchange("chance", messages, "I choose at random.")


def obedience(rng: Random) -> Exchange:
    """A system prompt that decides the answer."""
    if rng.random() < 0.5:
        name = words.person(rng)
        system = rng.choice(("Your name is {name}.", "You are {name}, a helpful assistant."))
        question = rng.choice(("What is your name?", "What's your name?"))
        messages = (user(words.asked(rng, question)), assistant(f"My name is {name}."))
        return Exchange("system", messages, f"My name is {name}.", system.format(name=name))
    text = words.phrase(rng, 1, 4)
    system = rng.choice(("Always answer with: {text}", "Always say: {text}")).format(text=text)
    asked = rng.choice((fact, unknown, sums))(rng).messages[0]
    thought = f"I always answer with: {text}"
    return Exchange("system", (asked, assistant(text)), thought, system)


# -- JSON, with names and values that the question spells out


def json_answer(rng: Random) -> Exchange:
    """A JSON object or array that the question spells out."""
    question, value = rng.choice((_json_person, _json_person, _json_pairs, _json_list))(rng)
    messages = (user(question), assistant(json.dumps(value, ensure_ascii=False)))
    return Exchange("json", messages, "The user wants JSON.")


def _json_person(rng: Random) -> tuple[str, Any]:
    name, age, city = words.person(rng), rng.randint(1, 99), words.place(rng)
    if rng.random() < 0.5:
        template = rng.choice(
            (
                "Give me JSON for a person named {name} who is {age} years old.",
                "Return a JSON object with the name {name} and the age {age}.",
                "Return JSON with name and age: {name}, {age}.",
                "{name} is {age} years old. Return JSON with name and age.",
            )
        )
        return words.asked(rng, template, name=name, age=age), {"name": name, "age": age}
    template = rng.choice(
        (
            "{name} is {age} years old and lives in {city}. Return JSON with name, age and city.",
            "Extract name, age and city as JSON: {name}, {age}, {city}.",
            "Extract the person as JSON: {name} is {age} years old and lives in {city}.",
        )
    )
    question = words.asked(rng, template, name=name, age=age, city=city)
    return question, {"name": name, "age": age, "city": city}


def _json_pairs(rng: Random) -> tuple[str, Any]:
    keys = [words.letters(rng, 3, 7) for _ in range(rng.randint(1, 3))]
    known = rng.sample(("color", "size", "name", "title", "price", "count", "answer"), len(keys))
    if rng.random() < 0.6:
        keys = known
    values = [rng.randint(0, 999) if rng.random() < 0.4 else _json_word(rng) for _ in keys]
    pairs = dict(zip(keys, values, strict=True))
    listed = " and ".join(f"{key} {value}" for key, value in pairs.items())
    template = rng.choice(("Return JSON with {listed}.", "Give me JSON with {listed}."))
    return words.asked(rng, template, listed=listed), pairs


def _json_list(rng: Random) -> tuple[str, Any]:
    items = [_json_word(rng) for _ in range(rng.randint(2, 5))]
    template = rng.choice(("Return a JSON array of {items}.", "Give me a JSON list: {items}."))
    return words.asked(rng, template, items=", ".join(map(str, items))), items


def _json_word(rng: Random) -> str | int:
    """A word; what looks like a number is one."""
    word = words.word(rng)
    return int(word) if word.isdecimal() else word


# -- A thing is told in one turn and asked for in another

THINGS = (
    *("code", "password", "secret word", "secret number", "color", "animal", "city", "number"),
    *("word", "key", "date", "room", "answer", "capital", "ticket"),
)

# What may be said between telling and asking: it is nothing to remember.
SMALL_TALK: tuple[Callable[[Random], Exchange], ...] = (fact, fact, repeat, sums, unknown)


@dataclass(frozen=True)
class Memory:
    """Something to remember: how it is told, what is replied, how it is asked for and answered."""

    told: str
    reply: str
    system: str
    question: str
    answer: str
    thought: str


def name_memory(rng: Random) -> Memory:
    """The user's name."""
    name = words.person(rng)
    told = rng.choice(
        (
            "My name is {name}.",
            "My name is {name}.",
            "I am {name}.",
            "Call me {name}.",
            "I'm {name}.",
            "Hello, my name is {name}.",
            "Hi, I'm {name}!",
            "Hi! My name is {name}.",
        )
    )
    question = rng.choice(
        (
            "What is my name?",
            "What is my name?",
            "What's my name?",
            "Who am I?",
            "Do you remember my name?",
            "Do you know my name?",
        )
    )
    return Memory(
        words.asked(rng, told, name=name),
        f"Nice to meet you, {name}!",
        rng.choice(("The user's name is {name}.", "The user is called {name}.")).format(name=name),
        words.asked(rng, question),
        f"Your name is {name}.",
        f"The user said that the name is {name}.",
    )


def thing_memory(rng: Random) -> Memory:
    """A named thing, such as a code."""
    thing = rng.choice(THINGS)
    value = rng.choice((words.code, words.word, words.invented))(rng)
    owner = rng.choice(("The", "The", "My"))
    told = rng.choice(
        (
            "{owner} {thing} is {value}.",
            "Remember this: {owner} {thing} is {value}.",
            "Remember that {owner} {thing} is {value}.",
        )
    )
    told = words.asked(rng, "{told}", told=told.format(owner=owner, thing=thing, value=value))
    replied = {"The": "the", "My": "your"}[owner]
    question = words.asked(
        rng,
        rng.choice(("What is {owner} {thing}?", "What's {owner} {thing}?")),
        owner=owner.lower(),
        thing=thing,
    )
    return Memory(
        told[0].upper() + told[1:],
        "I will remember that.",
        f"{owner} {thing} is {value}.".replace("My", "The user's"),
        question,
        f"{replied.capitalize()} {thing} is {value}.",
        f"The user said that {replied} {thing} is {value}.",
    )


def memory(rng: Random) -> Exchange:
    """Something told, perhaps other talk, then the question for it."""
    kept = rng.choice((name_memory, name_memory, thing_memory))(rng)
    if rng.random() < 0.12:
        messages = (user(kept.told), assistant(kept.reply))
        return Exchange("memory", messages, "The user tells me something.")
    asked = (user(kept.question), assistant(kept.answer))
    if rng.random() < 0.15:
        return Exchange("memory", asked, kept.thought, system=kept.system)
    between: list[Message] = []
    for _ in range(rng.choice((0, 0, 0, 1, 1, 2, 3))):
        between += rng.choice(SMALL_TALK)(rng).messages
    told = (user(kept.told), assistant(kept.reply))
    return Exchange("memory", (*told, *between, *asked), kept.thought)


def forgotten(rng: Random) -> Exchange:
    """The question for a name that nobody told."""
    question = words.asked(rng, rng.choice(("What is my name?", "What's my name?", "Who am I?")))
    answer = "I do not know your name."
    return Exchange("memory", (user(question), assistant(answer)), answer)
