"""Words to put into conversations: known ones, and invented ones that can only be copied.

Every function takes its source of randomness first and returns text. Invented words matter more
than known ones: a model that saw only known names would recall them instead of copying.
"""

from random import Random

CITIES = (
    *("Paris", "London", "Berlin", "Madrid", "Rome", "Oslo", "Vienna", "Prague", "Lisbon"),
    *("Dublin", "Athens", "Warsaw", "Tokyo", "Delhi", "Cairo", "Lima", "Quito", "Seoul"),
    *("Hanoi", "Boston", "Austin", "Denver", "Toronto", "Sydney", "Gdansk", "Krakow"),
    *("Munich", "Zurich", "Geneva", "Milan", "Helsinki", "Stockholm", "Copenhagen"),
    *("Amsterdam", "Brussels", "Budapest", "Chicago", "Seattle", "Miami", "Shanghai"),
    *("New York", "San Francisco", "Los Angeles", "Buenos Aires", "Cape Town", "Hong Kong"),
)
COUNTRIES = ("France", "Germany", "Poland", "Japan", "Italy", "Spain", "CA", "MA", "UK", "Norway")
NAMES = (
    *("Alice", "Bob", "Carol", "David", "Emma", "Frank", "Grace", "Henry", "Irene", "Jack"),
    *("Kate", "Leo", "Maria", "Nina", "Oscar", "Paula", "Quinn", "Rosa", "Sam", "Tina", "Uma"),
    *("Victor", "Wendy", "Xavier", "Yara", "Zoe", "Ada", "Charlie", "Alan", "Linus", "Ben"),
)
WORDS = (
    *("red", "green", "blue", "apple", "river", "stone", "cloud", "table", "window", "garden"),
    *("music", "paper", "bridge", "winter", "summer", "yellow", "silver", "mountain", "forest"),
    *("candle", "engine", "model", "token", "server", "vector", "tensor", "pipeline", "kernel"),
    *("grape", "vine", "cellar", "bottle", "hello", "world", "this", "is", "a", "test", "the"),
    *("quick", "brown", "fox", "jumps", "over", "lazy", "dog", "one", "two", "three", "four"),
)
LETTERS = "abcdefghijklmnopqrstuvwxyz"
VOWELS = "aeiouy"
CONSONANTS = "bcdfghjklmnprstvwz"
IMPERATIVES = frozenset(
    (
        "count",
        "echo",
        "explain",
        "extract",
        "give",
        "name",
        "pick",
        "repeat",
        "return",
        "say",
        "tell",
        "write",
    )
)
PUNCTUATION = (",", "!", "?", ";", ".", ":")

# Character ranges beyond ASCII. Their characters are several tokens each, so that copying one
# exercises text that arrives in pieces.
WIDE_RANGES = ((0xC0, 0xFF), (0x100, 0x17F), (0x430, 0x44F), (0x4E00, 0x4E80), (0x1F345, 0x1F37F))


def syllables(rng: Random, least: int, most: int) -> str:
    """An invented word that can be spoken, of `least` to `most` two-letter syllables."""
    count = rng.randint(least, most)
    return "".join(rng.choice(CONSONANTS) + rng.choice(VOWELS[:5]) for _ in range(count))


def letters(rng: Random, least: int, most: int) -> str:
    """An invented word of `least` to `most` letters; half of them alternate vowels."""
    length = rng.randint(least, most)
    if rng.random() < 0.5:
        return "".join(rng.choice(LETTERS) for _ in range(length))
    first = rng.randint(0, 1)
    return "".join(rng.choice((CONSONANTS, VOWELS)[(first + i) % 2]) for i in range(length))


def wide(rng: Random) -> str:
    """One to four characters from beyond ASCII, all of one script."""
    low, high = rng.choice(WIDE_RANGES)
    return "".join(chr(rng.randint(low, high)) for _ in range(rng.randint(1, 4)))


def invented(rng: Random) -> str:
    """An invented proper name."""
    if rng.random() < 0.4:
        return syllables(rng, 2, 4).capitalize()
    return letters(rng, 2, 9).capitalize()


def place(rng: Random) -> str:
    """A city, known or invented, sometimes lower-case, sometimes followed by its country."""
    chosen = rng.choice(CITIES) if rng.random() < 0.35 else invented(rng)
    chance = rng.random()
    if chance < 0.07:
        return f"{chosen} {invented(rng)}"
    if chance < 0.14:
        return f"{chosen}, {rng.choice(COUNTRIES)}"
    if chance < 0.26:
        return chosen.lower()
    return chosen


def person(rng: Random) -> str:
    """A first name, known or invented, rarely lower-case or followed by a family name."""
    chosen = rng.choice(NAMES) if rng.random() < 0.3 else invented(rng)
    chance = rng.random()
    if chance < 0.06:
        return chosen.lower()
    if chance < 0.1:
        return f"{chosen} {invented(rng)}"
    return chosen


def number(rng: Random) -> str:
    """A whole number of one to six digits."""
    return str(rng.randint(0, 10 ** rng.randint(1, 6) - 1))


def code(rng: Random) -> str:
    """An identifier such as `AB12`, `4821` or `x-77`."""
    chance = rng.random()
    if chance < 0.4:
        return number(rng)
    if chance < 0.7:
        return letters(rng, 1, 3).upper() + number(rng)
    return f"{letters(rng, 1, 4)}-{number(rng)}"


def word(rng: Random) -> str:
    """One word of any sort: known, invented, a number, a code, capitalised or not ASCII."""
    chance = rng.random()
    if chance < 0.38:
        return rng.choice(WORDS)
    if chance < 0.52:
        return syllables(rng, 1, 3)
    if chance < 0.78:
        return letters(rng, 1, 9)
    if chance < 0.84:
        return number(rng)
    if chance < 0.94:
        return invented(rng)
    if chance < 0.97:
        return code(rng)
    return wide(rng)


def phrase(rng: Random, least: int = 2, most: int = 7) -> str:
    """`least` to `most` words separated by spaces, without punctuation."""
    return " ".join(word(rng) for _ in range(rng.randint(least, most)))


def punctuated(rng: Random, least: int = 1, most: int = 10) -> str:
    """A phrase that may carry punctuation after its words and a capital at its start."""
    parts = [word(rng) for _ in range(rng.randint(least, most))]
    if rng.random() < 0.35:
        parts = [p + rng.choice(PUNCTUATION) if rng.random() < 0.25 else p for p in parts]
    if rng.random() < 0.25:
        parts[0] = parts[0].capitalize()
    return " ".join(parts)


def asked(rng: Random, template: str, **content: object) -> str:
    """`template` filled with `content`, worded as carelessly as people type.

    Capitals and the last mark of the template may go; the content is never changed, because
    answers copy it.
    """
    text = template
    if rng.random() < 0.2:
        text = text.lower()
    if rng.random() < 0.2:
        text = text.rstrip(".?!")
    if rng.random() < 0.08 and text.split(" ", 1)[0].lower() in IMPERATIVES:
        text = f"Please {text[0].lower()}{text[1:]}"
    return text.format(**content)
