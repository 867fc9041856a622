"""The ability to remember: a thing is told in one turn and asked for in another."""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from training import words
from training.dialogue import Exchange, Message, assistant, user
from training.talk import fact, repeat, sums, unknown

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
