"""Pictures of coloured shapes, arrows and digits, which tiny-vision has learned to name."""

import base64
import io
from typing import Any, Final

from PIL import Image, ImageDraw, ImageFont

SIDE: Final = 112  # the largest square that tiny-vision does not scale
_WHOLE: Final = (24, 24, 88, 88)
_TURNS: Final = {"up": 0, "left": 90, "down": 180, "right": 270}  # in degrees, to the left

Box = tuple[int, int, int, int]  # left, top, right, bottom


def a_canvas(background: str = "white") -> Image.Image:
    return Image.new("RGB", (SIDE, SIDE), background)


def draw(picture: Image.Image, name: str, colour: str, box: Box = _WHOLE) -> None:
    pen = ImageDraw.Draw(picture)
    left, top, right, bottom = box
    if name == "circle":
        pen.ellipse(box, fill=colour)
    elif name == "square":
        pen.rectangle(box, fill=colour)
    else:
        pen.polygon([((left + right) / 2, top), (right, bottom), (left, bottom)], fill=colour)


def a_shape(name: str, colour: str, box: Box = _WHOLE, *, background: str = "white") -> Image.Image:
    picture = a_canvas(background)
    draw(picture, name, colour, box)
    return picture


def circle_and_square() -> Image.Image:
    """A red circle on the left of a blue square."""
    picture = a_shape("circle", "red", (6, 36, 46, 76))
    draw(picture, "square", "blue", (66, 36, 106, 76))
    return picture


def an_arrow(direction: str, colour: str = "red") -> Image.Image:
    picture = a_canvas()
    pen = ImageDraw.Draw(picture)
    pen.rectangle((48, 50, 64, 96), fill=colour)
    pen.polygon([(56, 14), (92, 54), (20, 54)], fill=colour)
    return picture.rotate(_TURNS[direction])


def a_digit(digit: int) -> Image.Image:
    picture = a_canvas()
    font = ImageFont.load_default(90)
    ImageDraw.Draw(picture).text((56, 56), str(digit), fill="black", font=font, anchor="mm")
    return picture


def circles(number: int) -> Image.Image:
    """One to five red circles."""
    picture = a_canvas()
    corners = [(20, 20), (70, 20), (20, 70), (70, 70), (45, 45)]
    for x, y in corners[:number]:
        draw(picture, "circle", "red", (x, y, x + 22, y + 22))
    return picture


def moving(direction: str) -> list[Image.Image]:
    """Four frames of a black circle that moves left or right."""
    lefts = [4, 28, 52, 76]
    lefts = lefts if direction == "right" else lefts[::-1]
    return [a_shape("circle", "black", (left, 40, left + 32, 72)) for left in lefts]


def encoded(picture: Image.Image, form: str = "PNG", **options: Any) -> bytes:
    file = io.BytesIO()
    picture.save(file, form, **options)
    return file.getvalue()


def data_url(data: bytes, content_type: str = "image/png") -> str:
    return f"data:{content_type};base64,{base64.b64encode(data).decode()}"
