"""What a picture shows, as values: coloured things and where they are, before anything is drawn.

Lengths are in units of the picture's shorter side, with the origin at the top left.
"""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

SHAPES = ("circle", "square", "triangle", "star")
DIRECTIONS = ("left", "right", "up", "down")
COLOURS = ("red", "green", "blue", "yellow", "orange", "purple", "black", "white")
# Every kind of thing has a number, which is its index here. The first is for no thing at all.
KINDS = (
    "nothing",
    *SHAPES,
    *(f"arrow {direction}" for direction in DIRECTIONS),
    *(f"digit {digit}" for digit in range(10)),
)
MAX_COUNT = 5
MARGIN = 0.03
NUM_TRIES = 60


@dataclass(frozen=True)
class Thing:
    """A thing with its centre and its width and height, which are equal."""

    kind: str
    colour: str
    x: float
    y: float
    size: float

    @property
    def word(self) -> str:
        """What it is called: `circle`, `arrow` or `7`."""
        name, _, detail = self.kind.partition(" ")
        return detail if name == "digit" else name

    @property
    def direction(self) -> str:
        """Where an arrow points."""
        return self.kind.partition(" ")[2]


@dataclass(frozen=True)
class Scene:
    """A picture's things and its proportions.

    `region` is where the only thing is, as (row, column) of thirds, or None if that is unclear.
    With `is_row` two things are beside each other, otherwise one is above the other.
    """

    topic: str
    width: float
    height: float
    things: tuple[Thing, ...] = ()
    region: tuple[int, int] | None = None
    is_row: bool = False


def scene(rng: Random, aspect: float) -> Scene:
    """Any scene; `aspect` is the picture's width over its height."""
    (make,) = rng.choices(list(TOPICS), weights=list(TOPICS.values()))
    return make(rng, aspect)


def plain_scene(rng: Random, aspect: float) -> Scene:
    """A scene with one thing, which two pictures can be compared by."""
    return rng.choice((single, single, digit, arrow))(rng, aspect)


def single(rng: Random, aspect: float) -> Scene:
    """One shape, large anywhere or small in a clear region."""
    return _lone(rng, aspect, "single", rng.choice(SHAPES))


def digit(rng: Random, aspect: float) -> Scene:
    """One digit."""
    width, height = _sides(aspect)
    size = rng.uniform(0.5, 0.9)
    kind = f"digit {rng.randrange(10)}"
    return Scene("digit", width, height, (_anywhere(rng, width, height, kind, size),))


def arrow(rng: Random, aspect: float) -> Scene:
    """One arrow."""
    width, height = _sides(aspect)
    kind = f"arrow {rng.choice(DIRECTIONS)}"
    thing = _anywhere(rng, width, height, kind, rng.uniform(0.4, 0.9))
    return Scene("arrow", width, height, (thing,))


def several(rng: Random, aspect: float) -> Scene:
    """One to five shapes of one kind and colour that do not touch."""
    width, height = _sides(aspect)
    kind, colour = rng.choice(SHAPES), rng.choice(COLOURS)
    count = rng.randint(1, MAX_COUNT)
    largest = 0.3 if count > 2 else 0.4
    while True:
        size = rng.uniform(0.18, largest)
        spots = _spots(rng, width, height, size, count)
        if spots:
            things = tuple(Thing(kind, colour, x, y, size) for x, y in spots)
            return Scene("several", width, height, things)
        largest = max(0.2, largest - 0.02)


def pair(rng: Random, aspect: float) -> Scene:
    """Two shapes that differ, beside or above each other, the left or upper one first."""
    width, height = _sides(aspect)
    is_row = rng.random() < 0.5 if 0.8 < aspect < 1.25 else width > height
    first = (rng.choice(SHAPES), rng.choice(COLOURS))
    second = first
    while second == first:
        second = (rng.choice(SHAPES), rng.choice(COLOURS))
    things = []
    for index, (kind, colour) in enumerate((first, second)):
        size = rng.uniform(0.25, 0.42)
        along = (0.25 + 0.5 * index + rng.uniform(-0.03, 0.03)) * (width if is_row else height)
        across = 0.5 + rng.uniform(-0.12, 0.12)
        x, y = (along, across * height) if is_row else (across * width, along)
        things.append(Thing(kind, colour, x, y, size))
    return Scene("pair", width, height, tuple(things), is_row=is_row)


def blank(rng: Random, aspect: float) -> Scene:
    """Only a background."""
    del rng
    return Scene("blank", *_sides(aspect))


TOPICS: dict[Callable[[Random, float], Scene], float] = {
    single: 27,
    several: 20,
    pair: 20,
    digit: 20,
    arrow: 11,
    blank: 2,
}


def moving(rng: Random, aspect: float, num_frames: int) -> tuple[str, list[Scene]]:
    """A direction and the scenes of a video in which one shape moves that way."""
    width, height = _sides(aspect)
    direction = rng.choice(DIRECTIONS)
    kind, colour, size = rng.choice(SHAPES), rng.choice(COLOURS), rng.uniform(0.25, 0.4)
    start, end = rng.uniform(0.2, 0.3), rng.uniform(0.7, 0.8)
    across = rng.uniform(0.3, 0.7)
    frames = []
    for index in range(num_frames):
        along = start + (end - start) * index / (num_frames - 1)
        along = 1 - along if direction in ("left", "up") else along
        x, y = (along, across) if direction in ("left", "right") else (across, along)
        thing = Thing(kind, colour, x * width, y * height, size)
        frames.append(Scene("single", width, height, (thing,)))
    return direction, frames


def _sides(aspect: float) -> tuple[float, float]:
    """Width and height of a picture whose shorter side is 1."""
    return (aspect, 1.0) if aspect >= 1 else (1.0, 1 / aspect)


def _lone(rng: Random, aspect: float, topic: str, kind: str) -> Scene:
    width, height = _sides(aspect)
    if rng.random() < 0.5:
        thing = _anywhere(rng, width, height, kind, rng.uniform(0.35, 0.85))
        return Scene(topic, width, height, (thing,))
    size = rng.uniform(0.2, 0.34)
    row, column = rng.randrange(3), rng.randrange(3)
    x = width * ((1 + 2 * column) / 6 + rng.uniform(-0.04, 0.04))
    y = height * ((1 + 2 * row) / 6 + rng.uniform(-0.04, 0.04))
    thing = Thing(kind, rng.choice(COLOURS), x, y, size)
    return Scene(topic, width, height, (thing,), region=(row, column))


def _anywhere(rng: Random, width: float, height: float, kind: str, size: float) -> Thing:
    """A thing of any colour anywhere inside."""
    reach = size / 2 + MARGIN
    x, y = rng.uniform(reach, width - reach), rng.uniform(reach, height - reach)
    return Thing(kind, rng.choice(COLOURS), x, y, size)


def _spots(
    rng: Random, width: float, height: float, size: float, count: int
) -> list[tuple[float, float]]:
    """`count` centres so far from each other that things of `size` do not touch, or none."""
    reach = size / 2 + MARGIN
    spots: list[tuple[float, float]] = []
    for _ in range(NUM_TRIES):
        x, y = rng.uniform(reach, width - reach), rng.uniform(reach, height - reach)
        if all(max(abs(x - a), abs(y - b)) > size * 1.15 for a, b in spots):
            spots.append((x, y))
        if len(spots) == count:
            return spots
    return []
