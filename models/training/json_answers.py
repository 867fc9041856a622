"""The ability to answer in JSON, with names and values that the question spells out."""

import json
from random import Random
from typing import Any

from training import words
from training.dialogue import Exchange, assistant, user


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
