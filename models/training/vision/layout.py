"""How a picture becomes patches, where its tokens are, and what each cell shows.

The arithmetic is that of Qwen2-VL's processor. A grid is counted in cells of `CELL` pixels; each
cell is one image token made of four patches. Labels of cells train the vision encoder alone.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from training.vision.scenes import COLOURS, KINDS, Scene

PATCH = 14
MERGE = 2
FRAMES_PER_PATCH = 2
CELL = PATCH * MERGE  # One image token stands for a square of so many pixels.
CHANNELS = 3


@dataclass(frozen=True)
class Grid:
    """The size of a picture in cells."""

    rows: int
    columns: int

    @property
    def num_tokens(self) -> int:
        """Image tokens of a picture, or of two frames of a video."""
        return self.rows * self.columns

    @property
    def pixels(self) -> tuple[int, int]:
        """Width and height in pixels."""
        return self.columns * CELL, self.rows * CELL


# Every grid that the limits on pixels allow for ordinary proportions, and how often it is drawn.
GRIDS = {
    Grid(4, 4): 8,
    Grid(3, 3): 8,
    Grid(3, 5): 1,
    Grid(5, 3): 1,
    Grid(3, 4): 2,
    Grid(4, 3): 2,
    Grid(2, 5): 0.7,
    Grid(5, 2): 0.7,
    Grid(2, 4): 0.5,
    Grid(4, 2): 0.5,
    Grid(2, 3): 0.5,
    Grid(3, 2): 0.5,
    Grid(2, 2): 0.7,
}


def patches(picture: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """(height, width, 3) as (num_patches, 3 * 14 * 14), the four patches of a cell together."""
    height, width = picture.shape[:2]
    rows, columns = height // CELL, width // CELL
    split = picture.reshape(rows, MERGE, PATCH, columns, MERGE, PATCH, CHANNELS)
    ordered = split.transpose(0, 3, 1, 4, 6, 2, 5)
    return np.ascontiguousarray(ordered).reshape(-1, CHANNELS * PATCH * PATCH)


def patch_coordinates(grid: Grid) -> NDArray[np.int64]:
    """Row and column of every patch, in the order of `patches`: (num_patches, 2)."""
    rows, columns = np.mgrid[0 : grid.rows * MERGE, 0 : grid.columns * MERGE]
    coordinates = np.stack((rows, columns), axis=-1)
    split = coordinates.reshape(grid.rows, MERGE, grid.columns, MERGE, 2)
    return split.transpose(0, 2, 1, 3, 4).reshape(-1, 2)


def positions(
    ids: list[int], media_ids: tuple[int, ...], grid: Grid, num_times: int
) -> NDArray[np.int64]:
    """Time, row and column of every token: (3, num_tokens).

    A run of media tokens spans `num_times` grids; text goes on after the largest number used.
    """
    found = np.zeros((3, len(ids)), dtype=np.int64)
    times, rows, columns = np.mgrid[0:num_times, 0 : grid.rows, 0 : grid.columns]
    block = np.stack((times, rows, columns)).reshape(3, -1)
    index = following = 0
    while index < len(ids):
        if ids[index] in media_ids:
            found[:, index : index + block.shape[1]] = following + block
            following += int(block.max()) + 1
            index += block.shape[1]
        else:
            found[:, index] = following
            following += 1
            index += 1
    return found


# -- Labels

REACH = 0.62  # Of a thing's size: how far from its centre a cell still belongs to it.
MAX_CENTRES = 2


@dataclass(frozen=True)
class CellLabels:
    """For every cell the number of a kind, of a colour, and of the centres that lie in it."""

    kinds: NDArray[np.int64]
    colours: NDArray[np.int64]
    centres: NDArray[np.int64]


def cell_labels(scene: Scene, grid: Grid) -> CellLabels:
    """The labels of a scene's cells, row by row. Number 0 is for nothing."""
    kinds, colours, centres = (np.zeros((grid.rows, grid.columns), np.int64) for _ in range(3))
    nearest = np.full((grid.rows, grid.columns), REACH)
    rows, columns = np.mgrid[0 : grid.rows, 0 : grid.columns]
    y = (rows + 0.5) * scene.height / grid.rows
    x = (columns + 0.5) * scene.width / grid.columns
    for thing in scene.things:
        distance = np.maximum(np.abs(x - thing.x), np.abs(y - thing.y)) / thing.size
        row = min(grid.rows - 1, int(thing.y / scene.height * grid.rows))
        column = min(grid.columns - 1, int(thing.x / scene.width * grid.columns))
        distance[row, column] = 0
        is_nearest = distance < nearest
        nearest = np.minimum(nearest, distance)
        kinds[is_nearest] = KINDS.index(thing.kind)
        colours[is_nearest] = 1 + COLOURS.index(thing.colour)
        centres[row, column] = min(MAX_CENTRES, centres[row, column] + 1)
    return CellLabels(kinds.ravel(), colours.ravel(), centres.ravel())
