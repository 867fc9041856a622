"""Abilities of plain talk: facts, copying, counting, sums, chance and obedience.

Each function returns one exchange of its kind. The answer is in the question, in the system
prompt or in `training.facts`.
"""

from random import Random

from training import words
from training.dialogue import Exchange, assistant, user
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
