"""Texts with their meaning and their topic, drawn at random.

The last wording of every meaning is held out: training does not see it, and evaluation asks it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

from training.similarity.topics import FRAMES, TOPICS, Topic
from training.words import invented, word

SHARE_OF_FRAMES = 0.5
SHARE_CARELESS = 0.3
SHARE_OF_PASSAGES = 0.25


@dataclass(frozen=True)
class Meaning:
    """Wordings of one meaning, and the index of its topic in `TOPICS`."""

    topic: int
    key: tuple[object, ...]
    wordings: tuple[str, ...]

    def train(self, rng: Random) -> str:
        """A wording that training may see, typed as people do."""
        return careless(rng, rng.choice(self.wordings[:-1]))

    @property
    def held_out(self) -> str:
        return self.wordings[-1]


def meaning(rng: Random, topic: int | None = None) -> Meaning:
    """A meaning of this topic, or of any."""
    index = rng.randrange(len(TOPICS)) if topic is None else topic
    chosen = TOPICS[index]
    return framed(rng, index, chosen) if rng.random() < SHARE_OF_FRAMES else _told(rng, index)


def _told(rng: Random, index: int) -> Meaning:
    meanings = TOPICS[index].meanings
    at = rng.randrange(len(meanings))
    return Meaning(index, ("told", index, at), meanings[at])


def framed(rng: Random, index: int, topic: Topic) -> Meaning:
    """A frame filled with a group of synonyms: each wording takes one of them."""
    frame, group = rng.randrange(len(FRAMES)), rng.randrange(len(topic.groups))
    words = topic.groups[group]
    wordings = tuple(_filled(rng, each, rng.choice(words)) for each in FRAMES[frame])
    return Meaning(index, ("frame", index, frame, group), wordings)


def other(rng: Random, than: Meaning, *, is_near: bool) -> Meaning:
    """Another meaning: of the same topic if `is_near`, of another topic if not."""
    while True:
        found = meaning(rng, than.topic if is_near else None)
        if found.key != than.key and (found.topic == than.topic) == is_near:
            return found


def passage(rng: Random, about: Meaning, wording: str) -> str:
    """The wording, sometimes beside another text of its topic."""
    if rng.random() >= SHARE_OF_PASSAGES:
        return wording
    beside = other(rng, about, is_near=True).train(rng)
    return f"{wording} {beside}" if rng.random() < 0.5 else f"{beside} {wording}"


def careless(rng: Random, text: str) -> str:
    """The text, sometimes without its last mark, or with a word more."""
    if rng.random() >= SHARE_CARELESS:
        return text
    edits: Sequence[Callable[[], str]] = (
        lambda: text.rstrip(".?!"),
        lambda: f"Hello, {text[0].lower()}{text[1:]}",
        lambda: f"{text} {invented(rng)}",
        lambda: f"{word(rng)} {text}",
        lambda: f"Please: {text}",
    )
    return rng.choice(edits)()


def _filled(rng: Random, frame: str, noun: str) -> str:
    article = rng.choice(("", "the ", "a ", "my "))
    text = frame.format(f"{article}{noun}")
    return text[0].upper() + text[1:]
