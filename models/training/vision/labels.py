"""What each cell of a picture shows: targets that train the vision encoder alone."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from training.vision.layout import Grid
from training.vision.scenes import COLOURS, KINDS, Scene

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
