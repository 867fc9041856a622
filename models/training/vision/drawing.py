"""Draws scenes with Pillow, varied so that nothing but the things themselves can be learned.

Sizes, shades, backgrounds, edges, resampling, noise and JPEG's artefacts all vary.
"""

import io
import math
from dataclasses import dataclass
from functools import cache
from random import Random

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from training.vision.scenes import Scene, Thing

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


# -- Drawing

Rgb = tuple[int, int, int]

SHADES: dict[str, tuple[Rgb, ...]] = {
    "red": ((255, 0, 0), (220, 20, 30), (200, 30, 30), (235, 50, 50)),
    "green": ((0, 128, 0), (0, 200, 0), (0, 255, 0), (40, 160, 60), (30, 120, 50)),
    "blue": ((0, 0, 255), (30, 60, 220), (20, 80, 200), (40, 100, 240)),
    "yellow": ((255, 255, 0), (250, 220, 40), (240, 230, 60)),
    "orange": ((255, 165, 0), (255, 140, 0), (245, 130, 30)),
    "purple": ((128, 0, 128), (140, 50, 170), (110, 30, 150)),
    "black": ((0, 0, 0), (20, 20, 20), (35, 35, 35)),
    "white": ((255, 255, 255), (245, 245, 245)),
}
BACKGROUNDS: tuple[Rgb, ...] = (
    *(((255, 255, 255),) * 5),
    *((240, 240, 240), (250, 245, 230), (225, 235, 250), (230, 245, 230), (200, 200, 200)),
    *((128, 128, 128), (90, 90, 90), (0, 0, 0), (0, 0, 0), (30, 30, 40), (60, 60, 60)),
)
MIN_CONTRAST = 110
JITTER = 10
NOISE_BITS = 6  # Noise is drawn once, in parts of 2 to the power of this.
NOISE_REACH = 100_000  # Every picture starts somewhere in the drawn noise.
FILTERS = (
    Image.Resampling.BICUBIC,
    Image.Resampling.BICUBIC,
    Image.Resampling.BILINEAR,
    Image.Resampling.LANCZOS,
    Image.Resampling.BOX,
)


@dataclass(frozen=True)
class Style:
    """Everything about a drawing that its scene leaves open.

    `scale` is that of the canvas to the final picture, `noise` a standard deviation of 255.
    """

    shades: dict[str, Rgb]
    background: Rgb
    scale: float
    is_smooth: bool
    resampling: Image.Resampling
    noise: int
    noise_start: int
    jpeg_quality: int | None
    has_font: bool
    thickness: float
    slant: float
    turn: float
    star: float
    shaft: float


def style(rng: Random, colours: set[str]) -> Style:
    """Any style in which things of these colours can be seen."""
    shades, background = _colours(rng, colours)
    scale = rng.choice((1.0, 1.0, 1.0, 1.5, 2.0, 0.7))
    return Style(
        shades=shades,
        background=background,
        scale=scale,
        is_smooth=scale < 1.5 and rng.random() < 0.7,
        resampling=rng.choice(FILTERS),
        noise=rng.choice((0, 0, 0, 0, 6, 12)),
        noise_start=rng.randrange(NOISE_REACH),
        jpeg_quality=rng.choice((None, None, None, None, 90, 70, 50)),
        has_font=rng.random() < 0.6,
        thickness=rng.uniform(0.1, 0.2),
        slant=rng.uniform(-0.12, 0.12),
        turn=rng.uniform(-0.15, 0.15),
        star=rng.uniform(0.38, 0.5),
        shaft=rng.uniform(0.16, 0.32),
    )


def draw(rng: Random, scene: Scene, width: int, height: int) -> NDArray[np.uint8]:
    """The picture of a scene as (height, width, 3)."""
    return draw_frames(rng, [scene], width, height)[0]


def draw_frames(
    rng: Random, scenes: list[Scene], width: int, height: int
) -> list[NDArray[np.uint8]]:
    """Pictures of several scenes in one style, as a video has them."""
    colours = {thing.colour for scene in scenes for thing in scene.things}
    chosen = style(rng, colours)
    return [_drawn(chosen, scene, width, height) for scene in scenes]


def _drawn(style: Style, scene: Scene, width: int, height: int) -> NDArray[np.uint8]:
    unit = min(width, height) * style.scale
    size = (max(28, round(scene.width * unit)), max(28, round(scene.height * unit)))
    smooth = 2 if style.is_smooth else 1
    canvas = Image.new("RGB", (size[0] * smooth, size[1] * smooth), style.background)
    pen = ImageDraw.Draw(canvas)
    for thing in scene.things:
        _draw_thing(pen, style, thing, unit * smooth)
    if smooth > 1:
        canvas = canvas.resize(size, Image.Resampling.BOX)
    picture = _degraded(style, canvas)
    if picture.size != (width, height):
        picture = picture.resize((width, height), style.resampling)
    return np.asarray(picture)


def _draw_thing(pen: ImageDraw.ImageDraw, style: Style, thing: Thing, unit: float) -> None:
    x, y, half = thing.x * unit, thing.y * unit, thing.size * unit / 2
    colour = style.shades[thing.colour]
    if thing.kind == "circle":
        pen.ellipse((x - half, y - half, x + half, y + half), fill=colour)
    elif thing.kind.startswith("digit") and style.has_font:
        pen.text((x, y), thing.word, fill=colour, font=_font(round(half * 2.6)), anchor="mm")
    elif thing.kind.startswith("digit"):
        line = max(2, round(half * style.thickness * 2))
        for points in strokes(thing.word, style.slant):
            _draw_stroke(pen, [(x + a * half, y + b * half) for a, b in points], line, colour)
    else:
        corners = polygon(thing.kind, star=style.star, shaft=style.shaft)
        if not thing.direction:
            corners = turned(corners, style.turn)
        pen.polygon([(x + a * half, y + b * half) for a, b in corners], colour)


def _draw_stroke(pen: ImageDraw.ImageDraw, points: Points, line: int, colour: Rgb) -> None:
    """A line with round ends and corners."""
    pen.line(points, fill=colour, width=line, joint="curve")
    for x, y in points:
        pen.ellipse((x - line / 2, y - line / 2, x + line / 2, y + line / 2), fill=colour)


def _degraded(style: Style, picture: Image.Image) -> Image.Image:
    """The picture with noise and JPEG's artefacts."""
    if style.noise:
        values = np.asarray(picture)
        noise = _noise()[style.noise_start :][: values.size].reshape(values.shape)
        noisy = np.clip(values + (noise * style.noise >> NOISE_BITS), 0, 255)
        picture = Image.fromarray(noisy.astype(np.uint8))
    if style.jpeg_quality:
        stored = io.BytesIO()
        picture.save(stored, "JPEG", quality=style.jpeg_quality)
        picture = Image.open(stored).convert("RGB")
    return picture


def _colours(rng: Random, names: set[str]) -> tuple[dict[str, Rgb], Rgb]:
    """A shade for every colour name, and a background that all of them stand out from."""
    shades = {name: _jittered(rng, rng.choice(SHADES[name])) for name in sorted(names)}
    while True:
        background = _jittered(rng, rng.choice(BACKGROUNDS))
        if all(_contrast(shade, background) > MIN_CONTRAST for shade in shades.values()):
            return shades, background
        if rng.random() < 0.1:  # Black and white together leave only a grey.
            return shades, _jittered(rng, (128, 128, 128))


def _jittered(rng: Random, colour: Rgb) -> Rgb:
    red, green, blue = (min(255, max(0, c + rng.randint(-JITTER, JITTER))) for c in colour)
    return red, green, blue


def _contrast(one: Rgb, other: Rgb) -> float:
    return math.dist(one, other)


@cache
def _noise() -> NDArray[np.int16]:
    """Normal noise for the largest picture that is drawn, and more."""
    drawn = np.random.default_rng(1).normal(0, 2**NOISE_BITS, 700_000 + NOISE_REACH)
    return drawn.astype(np.int16)


@cache
def _font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(max(8, size))
