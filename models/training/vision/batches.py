"""Lessons as arrays. All pictures of a batch have one grid, so that they are seen side by side.

`drawn_elsewhere` draws in processes of its own, so that drawing and learning go on together.
"""

import multiprocessing
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from queue import Full
from random import Random

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from training.tokenization import load_tokenizer
from training.vision.drawing import draw, draw_frames
from training.vision.layout import (
    FRAMES_PER_PATCH,
    GRIDS,
    CellLabels,
    Grid,
    cell_labels,
    patches,
    positions,
)
from training.vision.rendering import ANSWER_START, END_OF_TURN, SPECIAL_TOKENS, render
from training.vision.scenes import Scene, scene
from training.vision.talks import Talk, talk

IMAGE_ID = SPECIAL_TOKENS.index("<|image_pad|>")
VIDEO_ID = SPECIAL_TOKENS.index("<|video_pad|>")
# How many pictures a talk has, and how often; None is for a video.
MEDIA: dict[int | None, float] = {0: 6, 1: 52, 2: 33, None: 9}
NUM_BATCHES_AT_ONCE = 4  # Drawn together and sorted by length, so that little is padding.
NUM_WAITING = 6  # Drawn batches for each process that draws.
MAX_DRAWERS = 1000
S_BETWEEN_LOOKS_AT_PARENT = 5


@dataclass(frozen=True)
class Pictures:
    """Pictures of one grid with the labels of their cells; of frames, always two together.

    `patches` is (num_pictures, num_frames, num_patches, values).
    """

    grid: Grid
    patches: NDArray[np.uint8]
    kinds: NDArray[np.int64]
    colours: NDArray[np.int64]
    centres: NDArray[np.int64]


@dataclass(frozen=True)
class TalkBatch:
    """Talks with their pictures in order. Rows are (num_talks, num_tokens)."""

    pictures: Pictures | None
    ids: NDArray[np.int64]
    weights: NDArray[np.float32]
    positions: NDArray[np.int64]  # (3, num_talks, num_tokens)


Batch = Pictures | TalkBatch


@dataclass(frozen=True)
class Mixture:
    """What to draw.

    `share_looking` is the share of batches that are pictures without talk. `largest` is the most
    cells that a picture has: small pictures come first because they are learned faster.
    `num_drawers` processes draw at the same time.
    """

    seed: int
    pictures_per_batch: int
    talks_per_batch: int
    share_looking: float
    largest: int
    num_drawers: int = 1


def batches(tokenizer: Tokenizer, mixture: Mixture) -> Iterator[Batch]:
    """Endless batches, in random order."""
    rng = Random(mixture.seed)
    while True:
        if rng.random() < mixture.share_looking:
            yield looking(rng, mixture.pictures_per_batch, mixture.largest)
        else:
            yield from talking(rng, tokenizer, mixture.talks_per_batch, mixture.largest)


def looking(rng: Random, count: int, largest: int) -> Pictures:
    """`count` pictures of any scenes."""
    grid = _grid(rng, largest)
    scenes = [scene(rng, _aspect(rng, grid)) for _ in range(count)]
    return _pictures(rng, grid, [[one] for one in scenes])


def talking(rng: Random, tokenizer: Tokenizer, count: int, largest: int) -> Iterator[TalkBatch]:
    """A few batches of `count` talks with the same number of pictures of one grid."""
    grid = _grid(rng, largest)
    (num_pictures,) = rng.choices(list(MEDIA), weights=list(MEDIA.values()))
    is_video = num_pictures is None
    talks = [
        talk(rng, num_pictures or 0, _aspect(rng, grid), is_video=is_video)
        for _ in range(count * NUM_BATCHES_AT_ONCE)
    ]
    encoded = [(one, *encode(tokenizer, one, grid)) for one in talks]
    encoded.sort(key=lambda row: len(row[1]))
    groups = [encoded[start : start + count] for start in range(0, len(encoded), count)]
    rng.shuffle(groups)
    for group in groups:
        yield _talk_batch(rng, grid, group)


def encode(tokenizer: Tokenizer, one: Talk, grid: Grid) -> tuple[list[int], list[float]]:
    """Token ids of a talk, its media tokens as many as there will be, and each id's weight."""
    ids: list[int] = []
    weights: list[float] = []
    for index, passage in enumerate(render(one.messages()).split(ANSWER_START)):
        answer, end, question = passage.partition(END_OF_TURN) if index else ("", "", passage)
        is_practised = not answer.startswith("<tool_call>")
        for text, weight in ((answer + end, float(is_practised)), (question, 0.0)):
            found = _expanded(tokenizer.encode(text, add_special_tokens=False).ids, grid)
            ids += found
            weights += [weight] * len(found)
        start = tokenizer.encode(ANSWER_START, add_special_tokens=False).ids
        ids += start
        weights += [0.0] * len(start)
    return ids[: -len(start)], weights[: -len(start)]


def drawn_elsewhere(tokenizer: Path, mixture: Mixture) -> Iterator[Batch]:
    """The batches that other processes draw, which end with this one. Each has its own seed."""
    context = multiprocessing.get_context("spawn")
    queue = context.Queue(NUM_WAITING * mixture.num_drawers)
    for number in range(mixture.num_drawers):
        own = replace(mixture, seed=mixture.seed * MAX_DRAWERS + number)
        context.Process(target=_draw_into, args=(queue, tokenizer, own), daemon=True).start()
    while True:
        yield queue.get()


def _draw_into(queue: "multiprocessing.Queue[Batch]", tokenizer: Path, mixture: Mixture) -> None:
    parent = multiprocessing.parent_process()
    for batch in batches(load_tokenizer(tokenizer), mixture):
        while True:
            try:
                queue.put(batch, timeout=S_BETWEEN_LOOKS_AT_PARENT)
                break
            except Full:
                if parent is None or not parent.is_alive():
                    return


def _grid(rng: Random, largest: int) -> Grid:
    grids = {grid: weight for grid, weight in GRIDS.items() if grid.num_tokens <= largest}
    (grid,) = rng.choices(list(grids), weights=list(grids.values()))
    return grid


def _aspect(rng: Random, grid: Grid) -> float:
    """Proportions that end up in this grid, which is never far from them."""
    return grid.columns / grid.rows * rng.uniform(0.87, 1.15)


def _pictures(rng: Random, grid: Grid, groups: list[list[Scene]]) -> Pictures:
    """Pictures, or pairs of frames where the groups hold two scenes."""
    drawn = []
    for group in groups:
        if len(group) == 1:
            drawn.append([patches(draw(rng, group[0], *grid.pixels))])
        else:
            drawn.append([patches(frame) for frame in draw_frames(rng, group, *grid.pixels)])
    labels = [cell_labels(group[0], grid) for group in groups]
    return Pictures(grid, np.array(drawn), *_stacked(labels))


def _video_pictures(rng: Random, grid: Grid, videos: list[tuple[Scene, ...]]) -> Pictures:
    """The pairs of frames of all videos, each video in colours of its own."""
    pairs = []
    labels = []
    for frames in videos:
        drawn = [patches(frame) for frame in draw_frames(rng, list(frames), *grid.pixels)]
        for start in range(0, len(frames), FRAMES_PER_PATCH):
            pairs.append(drawn[start : start + FRAMES_PER_PATCH])
            labels.append(cell_labels(frames[start], grid))
    return Pictures(grid, np.array(pairs), *_stacked(labels))


def _stacked(labels: list[CellLabels]) -> tuple[NDArray[np.int64], ...]:
    return (
        np.array([one.kinds for one in labels]),
        np.array([one.colours for one in labels]),
        np.array([one.centres for one in labels]),
    )


def _expanded(ids: list[int], grid: Grid) -> list[int]:
    found: list[int] = []
    for token in ids:
        times = {IMAGE_ID: 1, VIDEO_ID: 2}.get(token)
        found += [token] * (times * grid.num_tokens if times else 1)
    return found


def _talk_batch(
    rng: Random, grid: Grid, group: list[tuple[Talk, list[int], list[float]]]
) -> TalkBatch:
    width = max(len(ids) for _, ids, _ in group)
    ids = np.zeros((len(group), width), dtype=np.int64)
    weights = np.zeros((len(group), width), dtype=np.float32)
    coordinates = np.zeros((3, len(group), width), dtype=np.int64)
    is_video = group[0][0].is_video
    for row, (_, its_ids, its_weights) in enumerate(group):
        ids[row, : len(its_ids)] = its_ids
        weights[row, : len(its_ids)] = its_weights
        num_times = FRAMES_PER_PATCH if is_video else 1
        coordinates[:, row, : len(its_ids)] = positions(
            its_ids, (IMAGE_ID, VIDEO_ID), grid, num_times
        )
    if is_video:
        pictures = _video_pictures(rng, grid, [one.scenes for one, _, _ in group])
    elif group[0][0].scenes:
        pictures = _pictures(rng, grid, [[s] for one, _, _ in group for s in one.scenes])
    else:
        return TalkBatch(None, ids, weights, coordinates)
    return TalkBatch(pictures, ids, weights, coordinates)
