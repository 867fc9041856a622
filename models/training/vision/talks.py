"""Talks: several turns about one or two pictures, a video, or none.

A talk is what the model reads and writes. Its pictures are scenes that are drawn later. All
pictures of one talk have the same proportions, so that talks can be trained side by side.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from training.vision.questions import Exchange, about, about_two, about_video, without_picture
from training.vision.scenes import Scene, moving, plain_scene, scene

Message = dict[str, Any]
Part = dict[str, str]

PICTURE: Part = {"type": "image"}
VIDEO: Part = {"type": "video"}
NUM_FRAMES = 4
SMALL_TALK = (
    (("Hello.", "Hello!", "Hi.", "Hi!", "Say hello.", "Good morning."), "Hello!"),
    (
        ("Who are you?", "What are you?", "What is your name?"),
        "I am tiny-vision, a very small model that ships with Vinery.",
    ),
    (
        ("What can you do?", "Help.", "How can you help me?"),
        "Show me a picture of shapes, a digit or an arrow and ask what is in it.",
    ),
    (("Thank you.", "Thanks!"), "You are welcome!"),
    (("Goodbye.", "Bye!"), "Goodbye!"),
    (("How are you?", "How is it going?"), "I am well, thank you."),
)
SYSTEM_PROMPTS = ("You are a helpful assistant.", "Be brief.", "Answer questions about pictures.")
CAMERA_CALL = {"function": {"name": "look", "arguments": {}}}
MAX_COUNTED = 30


@dataclass(frozen=True)
class Turn:
    """A user's message, the answer, and under which heading the answer is counted."""

    kind: str
    content: str | list[Part]
    answer: str
    before: Sequence[Message] = ()


@dataclass(frozen=True)
class Talk:
    """Turns, and the scenes of their pictures in the order in which the pictures are shown.

    With `is_video`, the scenes are the frames of one video.
    """

    turns: tuple[Turn, ...]
    scenes: tuple[Scene, ...] = ()
    is_video: bool = False
    system: str = ""

    def messages(self, num_turns: int | None = None) -> list[Message]:
        """All messages of the first `num_turns` turns, the last answer included."""
        found: list[Message] = [{"role": "system", "content": self.system}] if self.system else []
        for turn in self.turns[:num_turns]:
            found += turn.before
            found.append({"role": "user", "content": turn.content})
            found.append({"role": "assistant", "content": turn.answer})
        return found


def talk(rng: Random, num_pictures: int, aspect: float, *, is_video: bool = False) -> Talk:
    """A talk with so many pictures, which may also be none, or with a video."""
    if is_video:
        made = video_talk(rng, aspect)
    elif num_pictures == 0:
        made = text_talk(rng)
    elif num_pictures == 1:
        made = picture_talk(rng, aspect)
    else:
        made = two_picture_talk(rng, aspect)
    system = rng.choice(SYSTEM_PROMPTS) if rng.random() < 0.2 else ""
    return Talk(made.turns, made.scenes, made.is_video, system)


def picture_talk(rng: Random, aspect: float) -> Talk:
    """One picture, shown in the first turn or after some small talk, and questions about it."""
    shown = scene(rng, aspect)
    turns: list[Turn] = []
    if rng.random() < 0.15:
        turns.append(_spoken(rng.choice((small_talk, without_picture))(rng)))
    first = about(rng, shown)
    turns.append(_by_camera(first) if rng.random() < 0.04 else _showing(rng, first, [PICTURE]))
    for _ in range(rng.randint(1, 5)):
        turns.append(_spoken(small_talk(rng) if rng.random() < 0.06 else about(rng, shown)))
    return Talk(tuple(turns), (shown,))


def two_picture_talk(rng: Random, aspect: float) -> Talk:
    """Two pictures, together or one after the other, and questions about them."""
    first = plain_scene(rng, aspect) if rng.random() < 0.8 else scene(rng, aspect)
    second = _companion(rng, first, aspect)
    turns: list[Turn] = []
    if rng.random() < 0.4:
        turns.append(_showing(rng, about(rng, first), [PICTURE]))
        latest = about(rng, second) if rng.random() < 0.5 else about_two(rng, first, second)
        turns.append(_showing(rng, latest, [PICTURE]))
    else:
        turns.append(_showing(rng, about_two(rng, first, second), [PICTURE, PICTURE]))
    turns += [_spoken(about_two(rng, first, second)) for _ in range(rng.randint(1, 3))]
    return Talk(tuple(turns), (first, second))


def video_talk(rng: Random, aspect: float) -> Talk:
    """One video and questions about it."""
    direction, frames = moving(rng, aspect, NUM_FRAMES)
    asked = [about_video(rng, direction, frames[0]) for _ in range(rng.randint(2, 3))]
    turns = (_showing(rng, asked[0], [VIDEO]), *map(_spoken, asked[1:]))
    return Talk(turns, tuple(frames), is_video=True)


def text_talk(rng: Random) -> Talk:
    """No picture: small talk, counting, and questions about a picture that was forgotten."""
    makers = (small_talk, small_talk, counting, without_picture, without_picture)
    turns = [_spoken(rng.choice(makers)(rng)) for _ in range(rng.randint(1, 4))]
    return Talk(tuple(turns))


def small_talk(rng: Random) -> Exchange:
    """A greeting or the like."""
    questions, answer = rng.choice(SMALL_TALK)
    return Exchange("small talk", rng.choice(questions), answer)


def counting(rng: Random) -> Exchange:
    """A longer answer, which a stream can be watched with."""
    last = rng.randint(2, MAX_COUNTED)
    question = rng.choice((f"Count to {last}.", f"Count from 1 to {last}."))
    return Exchange("counting", question, " ".join(map(str, range(1, last + 1))))


def _companion(rng: Random, first: Scene, aspect: float) -> Scene:
    """A second picture: the same thing elsewhere, nearly the same, or another."""
    chance = rng.random()
    if chance < 0.6:
        for _ in range(200):
            other = plain_scene(rng, aspect)
            if _is_alike(first, other, num_equal=2 if chance < 0.35 else 1):
                return other
    return plain_scene(rng, aspect) if rng.random() < 0.8 else scene(rng, aspect)


def _is_alike(first: Scene, second: Scene, *, num_equal: int) -> bool:
    """Whether the first things have `num_equal` of colour and kind in common."""
    if not (first.things and second.things) or first.topic != second.topic:
        return False
    one, other = first.things[0], second.things[0]
    return (one.kind == other.kind) + (one.colour == other.colour) == num_equal


def _spoken(exchange: Exchange) -> Turn:
    return Turn(exchange.kind, exchange.question, exchange.answer)


def _showing(rng: Random, exchange: Exchange, parts: list[Part]) -> Turn:
    """The question after its pictures or before them."""
    text: Part = {"type": "text", "text": exchange.question}
    content = [*parts, text] if rng.random() < 0.6 else [text, *parts]
    return Turn(exchange.kind, content, exchange.answer)


def _by_camera(exchange: Exchange) -> Turn:
    """The picture comes as the result of a tool that the model has called."""
    before: list[Message] = [
        {"role": "user", "content": "Look."},
        {"role": "assistant", "content": "", "tool_calls": [CAMERA_CALL]},
        {"role": "tool", "content": [PICTURE]},
        {"role": "assistant", "content": "I see it."},
    ]
    return Turn(exchange.kind, exchange.question, exchange.answer, before)
