"""Questions about scenes, with the exact answers that the model is to give."""

from dataclasses import dataclass
from random import Random

from training.vision.scenes import COLOURS, SHAPES, Scene, Thing

NUMBERS = ("None", "One", "Two", "Three", "Four", "Five")
SEE = (
    "What is in the picture?",
    "What do you see?",
    "Describe the picture.",
    "What does the picture show?",
    "What is this?",
)
HERE = {
    "left": "On the left.",
    "right": "On the right.",
    "top": "At the top.",
    "bottom": "At the bottom.",
}
PLAIN_TOPICS = frozenset({"single", "digit", "arrow"})
NO_PICTURE = "I see no picture."


@dataclass(frozen=True)
class Exchange:
    """A question, its answer, and the heading under which its score is counted."""

    kind: str
    question: str
    answer: str


def about(rng: Random, scene: Scene) -> Exchange:
    """A question about what one picture shows."""
    makers = {
        "single": (describe, colour, shape, is_it, is_it, region, region),
        "several": (describe, colour, count, count, count),
        "pair": (describe, side, side, where, which, side_colour, num_shapes),
        "digit": (describe, digit, digit, digit, colour),
        "arrow": (describe, points, points, points, colour),
        "blank": (describe, count),
    }[scene.topic]
    return rng.choice(makers)(rng, scene)


def description(scene: Scene) -> str:
    """What a scene shows, without the full stop."""
    things = scene.things
    if not things:
        return "Nothing"
    if scene.topic == "several" and len(things) > 1:
        return f"{NUMBERS[len(things)]} {things[0].colour} {things[0].word}s"
    if scene.topic == "pair":
        return _capital(f"{with_article(things[0])} and {with_article(things[1])}")
    if scene.topic == "arrow":
        return _capital(f"{with_article(things[0])} that points {things[0].direction}")
    return _capital(with_article(things[0]))


def with_article(thing: Thing) -> str:
    """`a red circle`."""
    return f"{_article(thing.colour)} {thing.colour} {thing.word}"


def describe(rng: Random, scene: Scene) -> Exchange:
    """What is there."""
    return Exchange("describe", rng.choice(SEE), f"{description(scene)}.")


def colour(rng: Random, scene: Scene) -> Exchange:
    """The colour of the only kind of thing."""
    thing = scene.things[0]
    name = "colour" if rng.random() < 0.7 else "color"
    if len(scene.things) > 1:
        question = f"What {name} are the {thing.word}s?"
    else:
        noun = {"digit": "digit", "arrow": "arrow"}.get(scene.topic, thing.word)
        question = f"What {name} is {rng.choice(('it', f'the {noun}'))}?"
    return Exchange("colour", question, f"{_capital(thing.colour)}.")


def shape(rng: Random, scene: Scene) -> Exchange:
    """The shape of the only thing."""
    question = rng.choice(("What shape is it?", "Which shape do you see?", "What shape is this?"))
    return Exchange("shape", question, f"A {scene.things[0].word}.")


def is_it(rng: Random, scene: Scene) -> Exchange:
    """Whether the only thing has a colour or a shape."""
    thing = scene.things[0]
    if rng.random() < 0.5:
        asked = _same_or_other(rng, thing.word, SHAPES)
        return Exchange("yes or no", f"Is it a {asked}?", _yes(asked == thing.word))
    asked = _same_or_other(rng, thing.colour, COLOURS)
    noun = rng.choice(("it", f"the {thing.word}"))
    return Exchange("yes or no", f"Is {noun} {asked}?", _yes(asked == thing.colour))


def region(rng: Random, scene: Scene) -> Exchange:
    """In which third of the picture a small thing is; of a large one, its description."""
    if scene.region is None:
        return describe(rng, scene)
    noun = rng.choice(("it", f"the {scene.things[0].word}"))
    row, column = scene.region
    rows, columns = ("top", "", "bottom"), ("left", "", "right")
    where_it_is = f"{rows[row]} {columns[column]}".strip()
    answer = HERE.get(where_it_is) or (
        f"At the {where_it_is}." if where_it_is else "In the middle."
    )
    return Exchange("region", f"Where is {noun}?", answer)


def count(rng: Random, scene: Scene) -> Exchange:
    """How many things of a kind there are."""
    word = scene.things[0].word if scene.things else rng.choice(SHAPES)
    question = rng.choice(
        (f"How many {word}s are there?", f"How many {word}s do you see?", f"Count the {word}s.")
    )
    return Exchange("count", question, f"{NUMBERS[len(scene.things)]}.")


def digit(rng: Random, scene: Scene) -> Exchange:
    """Which digit it is."""
    question = rng.choice(
        ("Which digit is it?", "Which digit do you see?", "Read the digit.", "What number is it?")
    )
    return Exchange("digit", question, f"{scene.things[0].word}.")


def points(rng: Random, scene: Scene) -> Exchange:
    """Where the arrow points."""
    question = rng.choice(("Where does the arrow point?", "Which way does the arrow point?"))
    return Exchange("arrow", question, f"{_capital(scene.things[0].direction)}.")


def side(rng: Random, scene: Scene) -> Exchange:
    """What is on one side of a picture with two things."""
    index = rng.randrange(2)
    question = f"What is {HERE[_sides(scene)[index]].lower()[:-1]}?"
    return Exchange("two shapes", question, f"{_capital(with_article(scene.things[index]))}.")


def side_colour(rng: Random, scene: Scene) -> Exchange:
    """What colour the thing on one side has."""
    index = rng.randrange(2)
    name = {"top": "upper", "bottom": "lower"}.get(_sides(scene)[index], _sides(scene)[index])
    question = f"What colour is the {name} one?"
    return Exchange("two shapes", question, f"{_capital(scene.things[index].colour)}.")


def where(rng: Random, scene: Scene) -> Exchange:
    """On which side one of two things is."""
    index = rng.randrange(2)
    thing = scene.things[index]
    question = f"Where is the {thing.colour} {thing.word}?"
    return Exchange("two shapes", question, HERE[_sides(scene)[index]])


def which(rng: Random, scene: Scene) -> Exchange:
    """Which of two named things is on a side."""
    index = rng.randrange(2)
    names = [f"the {thing.colour} {thing.word}" for thing in scene.things]
    first, second = rng.sample(names, 2)
    here = HERE[_sides(scene)[index]].lower()[:-1]
    question = f"Which one is {here}, {first} or {second}?"
    return Exchange("two shapes", question, f"{_capital(names[index])}.")


def num_shapes(rng: Random, scene: Scene) -> Exchange:
    """How many shapes there are at all."""
    del rng
    return Exchange("count", "How many shapes are there?", f"{NUMBERS[len(scene.things)]}.")


def about_two(rng: Random, first: Scene, second: Scene) -> Exchange:
    """A question about two pictures."""
    is_same = first_is_second(first, second)
    chance = rng.random()
    if chance < 0.25:
        question = rng.choice(("Are the pictures the same?", "Do both pictures show the same?"))
        return Exchange("same or not", question, _yes(is_same))
    if chance < 0.55 and not is_same and not {first.topic, second.topic} - PLAIN_TOPICS:
        index = rng.randrange(2)
        name = description((first, second)[index]).lower()
        question = f"Which picture shows {name}?"
        return Exchange("which picture", question, ("The first.", "The second.")[index])
    if chance < 0.65:
        both = f"{description(first)}, then {description(second).lower()}."
        return Exchange("two pictures", "What do the pictures show?", both)
    index = rng.randrange(2)
    question = f"What is in the {('first', 'second')[index]} picture?"
    return Exchange("two pictures", question, f"{description((first, second)[index])}.")


def first_is_second(first: Scene, second: Scene) -> bool:
    """Whether two pictures show the same, wherever it is."""
    return description(first) == description(second)


def about_video(rng: Random, direction: str, frame: Scene) -> Exchange:
    """A question about a video in which one thing moves."""
    thing = frame.things[0]
    chance = rng.random()
    if chance < 0.6:
        noun = rng.choice(("it", f"the {thing.word}"))
        question = rng.choice((f"Which way does {noun} move?", f"Where does {noun} move?"))
        return Exchange("video", question, f"{_capital(direction)}.")
    if chance < 0.8:
        answer = f"{_capital(with_article(thing))} that moves {direction}."
        return Exchange("video", rng.choice(("What happens?", "Describe the video.")), answer)
    return rng.choice((colour, shape))(rng, frame)


def without_picture(rng: Random) -> Exchange:
    """A question about a picture that is not there."""
    word = rng.choice(SHAPES)
    questions = (
        *SEE,
        *("What colour is it?", f"What colour is the {word}?", "What shape is it?"),
        *(f"How many {word}s are there?", f"Where is the {word}?", "Which digit is it?"),
        *("What is on the left?", "What is in the second picture?", "Are the pictures the same?"),
        *("Where does the arrow point?", "Can you see the picture?", "Which way does it move?"),
    )
    return Exchange("no picture", rng.choice(questions), NO_PICTURE)


def _sides(scene: Scene) -> tuple[str, str]:
    return ("left", "right") if scene.is_row else ("top", "bottom")


def _same_or_other(rng: Random, value: str, values: tuple[str, ...]) -> str:
    return value if rng.random() < 0.5 else rng.choice([v for v in values if v != value])


def _yes(is_true: bool) -> str:  # noqa: FBT001
    return "Yes." if is_true else "No."


def _article(word: str) -> str:
    return "an" if word[0] in "aeiou" else "a"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
