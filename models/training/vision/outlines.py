"""The outlines of things, 2 wide and 2 high around their centre; y grows downwards."""

import math

Points = list[tuple[float, float]]

# Digits as strokes on a board of 2 by 4, for hands other than the font's.
STROKES: dict[str, tuple[Points, ...]] = {
    "0": ([(0.5, 0), (1.5, 0), (2, 1), (2, 3), (1.5, 4), (0.5, 4), (0, 3), (0, 1), (0.5, 0)],),
    "1": ([(0.4, 0.9), (1.2, 0), (1.2, 4)],),
    "2": ([(0, 0.8), (0.5, 0), (1.5, 0), (2, 0.8), (2, 1.5), (0, 4), (2, 4)],),
    "3": (
        [(0, 0.4), (1, 0), (2, 0.7), (1.9, 1.5), (0.9, 2), (2, 2.6), (2, 3.4), (1, 4), (0, 3.6)],
    ),
    "4": ([(1.5, 4), (1.5, 0), (0, 2.8), (2, 2.8)],),
    "5": ([(2, 0), (0.2, 0), (0.1, 1.8), (1.4, 1.7), (2, 2.4), (2, 3.3), (1.3, 4), (0, 3.8)],),
    "6": (
        [
            (1.8, 0),
            (0.7, 0.6),
            (0, 2),
            (0, 3.3),
            (0.6, 4),
            (1.4, 4),
            (2, 3.3),
            (2, 2.5),
            (1.4, 1.9),
        ],
        [(1.4, 1.9), (0.6, 1.9), (0, 2.6)],
    ),
    "7": ([(0, 0), (2, 0), (0.8, 4)],),
    "8": (
        [(1, 1.9), (0.2, 1.3), (0.2, 0.6), (0.7, 0), (1.3, 0), (1.8, 0.6), (1.8, 1.3), (1, 1.9)],
        [(1, 1.9), (0, 2.7), (0, 3.4), (0.6, 4), (1.4, 4), (2, 3.4), (2, 2.7), (1, 1.9)],
    ),
    "9": (
        [(0.2, 4), (1.3, 3.4), (2, 2), (2, 0.7), (1.4, 0), (0.6, 0), (0, 0.7), (0, 1.5)],
        [(0, 1.5), (0.6, 2.1), (1.4, 2.1), (2, 1.4)],
    ),
}


def polygon(kind: str, *, star: float, shaft: float) -> Points:
    """The corners of a square, a triangle, a star or an arrow.

    `star` is how far a star's inner corners are from its centre, `shaft` half an arrow's thickness.
    """
    name, _, direction = kind.partition(" ")
    if name == "square":
        return [(-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)]
    if name == "triangle":
        return [(0, -1), (1, 0.9), (-1, 0.9)]
    if name == "star":
        turns = [math.pi * (index / 5 - 0.5) for index in range(10)]
        sizes = [1.05 if index % 2 == 0 else star for index in range(10)]
        return [(s * math.cos(t), s * math.sin(t)) for s, t in zip(sizes, turns, strict=True)]
    right: Points = [
        *((-1.0, -shaft), (0.1, -shaft), (0.1, -0.7), (1.0, 0.0)),
        *((0.1, 0.7), (0.1, shaft), (-1.0, shaft)),
    ]
    quarters = {"right": 0, "down": 1, "left": 2, "up": 3}[direction]
    return turned(right, quarters * math.pi / 2)


def strokes(digit: str, slant: float) -> list[Points]:
    """The strokes of a digit that leans by `slant`."""
    found = []
    for stroke in STROKES[digit]:
        on_board = [((across - 1) * 0.55, (down - 2) * 0.45) for across, down in stroke]
        found.append([(x - y * slant, y) for x, y in on_board])
    return found


def turned(points: Points, angle: float) -> Points:
    """The points turned clockwise by `angle` in radians."""
    cosine, sine = math.cos(angle), math.sin(angle)
    return [(x * cosine - y * sine, x * sine + y * cosine) for x, y in points]
