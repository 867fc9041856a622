"""Draws scenes with Pillow, varied so that nothing but the things themselves can be learned.

Sizes, shades, backgrounds, edges, resampling, noise and JPEG's artefacts all vary.
"""

import io
import math
from functools import cache
from random import Random

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from training.vision.scenes import Scene, Thing

Rgb = tuple[int, int, int]
Points = list[tuple[float, float]]

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


def draw(rng: Random, scene: Scene, width: int, height: int) -> NDArray[np.uint8]:
    """The picture of a scene as (height, width, 3)."""
    return draw_frames(rng, [scene], width, height)[0]


def draw_frames(
    rng: Random, scenes: list[Scene], width: int, height: int
) -> list[NDArray[np.uint8]]:
    """Pictures of several scenes in the same colours and manner, as a film has them."""
    style = _Style(rng, scenes[0])
    return [style.draw(scene, width, height) for scene in scenes]


class _Style:
    """Everything about a drawing that the scene leaves open."""

    def __init__(self, rng: Random, scene: Scene) -> None:
        self._noise_start = rng.randrange(NOISE_REACH)
        self._shades, self._background = _colours(rng, {thing.colour for thing in scene.things})
        self._scale = rng.choice((1.0, 1.0, 1.0, 1.5, 2.0, 0.7))
        self._is_smooth = self._scale < 1.5 and rng.random() < 0.7
        self._resampling = rng.choice(FILTERS)
        self._noise = rng.choice((0, 0, 0, 0, 6, 12))
        self._jpeg_quality = rng.choice((None, None, None, None, 90, 70, 50))
        self._has_font = rng.random() < 0.6
        self._thickness = rng.uniform(0.1, 0.2)
        self._slant = rng.uniform(-0.12, 0.12)
        self._turn = rng.uniform(-0.15, 0.15)
        self._star = rng.uniform(0.38, 0.5)
        self._shaft = rng.uniform(0.08, 0.16)

    def draw(self, scene: Scene, width: int, height: int) -> NDArray[np.uint8]:
        """The picture in its final size."""
        unit = min(width, height) * self._scale
        size = (max(28, round(scene.width * unit)), max(28, round(scene.height * unit)))
        smooth = 2 if self._is_smooth else 1
        canvas = Image.new("RGB", (size[0] * smooth, size[1] * smooth), self._background)
        pen = ImageDraw.Draw(canvas)
        for thing in scene.things:
            self._thing(pen, thing, unit * smooth)
        if smooth > 1:
            canvas = canvas.resize(size, Image.Resampling.BOX)
        picture = self._worn(canvas)
        if picture.size != (width, height):
            picture = picture.resize((width, height), self._resampling)
        return np.asarray(picture)

    def _thing(self, pen: ImageDraw.ImageDraw, thing: Thing, unit: float) -> None:
        x, y, half = thing.x * unit, thing.y * unit, thing.size * unit / 2
        colour = self._shades[thing.colour]
        name = thing.kind.partition(" ")[0]
        if name == "circle":
            pen.ellipse((x - half, y - half, x + half, y + half), fill=colour)
        elif name == "digit" and self._has_font:
            pen.text((x, y), thing.word, fill=colour, font=_font(round(half * 2.6)), anchor="mm")
        elif name == "digit":
            self._strokes(pen, thing, unit, colour)
        else:
            pen.polygon([(x + a * half, y + b * half) for a, b in self._outline(thing)], colour)

    def _outline(self, thing: Thing) -> Points:
        """The corners of a shape that is 2 by 2 around its centre."""
        if thing.kind == "square":
            points: Points = [(-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)]
        elif thing.kind == "triangle":
            points = [(0, -1), (1, 0.9), (-1, 0.9)]
        elif thing.kind == "star":
            turns = [math.pi * (index / 5 - 0.5) for index in range(10)]
            sizes = [1.05 if index % 2 == 0 else self._star for index in range(10)]
            points = [(s * math.cos(t), s * math.sin(t)) for s, t in zip(sizes, turns, strict=True)]
        else:
            return _arrow(thing.direction, self._shaft * 2)
        return [_turned(point, self._turn) for point in points]

    def _strokes(self, pen: ImageDraw.ImageDraw, thing: Thing, unit: float, colour: Rgb) -> None:
        half = thing.size * unit / 2
        line = max(2, round(half * self._thickness * 2))
        for stroke in STROKES[thing.word]:
            points = []
            for across, down in stroke:
                a, b = (across - 1) * 0.55, (down - 2) * 0.45
                points.append(
                    (thing.x * unit + (a - b * self._slant) * half, thing.y * unit + b * half)
                )
            pen.line(points, fill=colour, width=line, joint="curve")
            for a, b in points:
                pen.ellipse((a - line / 2, b - line / 2, a + line / 2, b + line / 2), fill=colour)

    def _worn(self, picture: Image.Image) -> Image.Image:
        """The picture with noise and JPEG's artefacts."""
        if self._noise:
            values = np.asarray(picture)
            noise = _noise()[self._noise_start :][: values.size].reshape(values.shape)
            noisy = np.clip(values + (noise * self._noise >> NOISE_BITS), 0, 255)
            picture = Image.fromarray(noisy.astype(np.uint8))
        if self._jpeg_quality:
            stored = io.BytesIO()
            picture.save(stored, "JPEG", quality=self._jpeg_quality)
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


def _turned(point: tuple[float, float], angle: float) -> tuple[float, float]:
    x, y = point
    return x * math.cos(angle) - y * math.sin(angle), x * math.sin(angle) + y * math.cos(angle)


def _arrow(direction: str, shaft: float) -> Points:
    """An arrow that is 2 long around its centre."""
    right: Points = [
        *((-1.0, -shaft), (0.1, -shaft), (0.1, -0.7), (1.0, 0.0)),
        *((0.1, 0.7), (0.1, shaft), (-1.0, shaft)),
    ]
    angle = {"right": 0.0, "down": 0.5, "left": 1.0, "up": 1.5}[direction] * math.pi
    return [_turned(point, angle) for point in right]


@cache
def _noise() -> NDArray[np.int16]:
    """Normal noise for the largest picture that is drawn, and more."""
    drawn = np.random.default_rng(1).normal(0, 2**NOISE_BITS, 700_000 + NOISE_REACH)
    return drawn.astype(np.int16)


@cache
def _font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(max(8, size))
