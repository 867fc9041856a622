"""The pictures that tiny-vision is trained on show what their scenes hold, in the right region."""

from random import Random

import numpy as np
from training.vision.drawing import SHADES, draw, draw_frames
from training.vision.labels import cell_labels
from training.vision.layout import GRIDS, Grid, patch_coordinates, patches, positions
from training.vision.scenes import COLOURS, KINDS, Scene, Thing, blank, scene

from tests.tables import table

RED_DOT = Scene("single", 1, 1, (Thing("circle", "red", 0.25, 0.75, 0.4),))


def _pixel(picture, x, y):
    height, width = picture.shape[:2]
    return picture[int(y * height), int(x * width)].astype(int)


@table("grid", GRIDS)
def test_a_picture_has_the_size_of_its_grid(grid):
    width, height = grid.pixels

    picture = draw(Random(1), blank(Random(1), width / height), width, height)

    assert picture.shape == (height, width, 3)
    assert picture.dtype == np.uint8


def test_a_thing_is_drawn_in_its_colour_where_it_is():
    rng = Random(2)
    for _ in range(50):
        picture = draw(rng, RED_DOT, 112, 112)

        red, green, blue = _pixel(picture, 0.25, 0.75)
        assert red > 150
        assert max(green, blue) < 110
        elsewhere = _pixel(picture, 0.75, 0.25)
        assert abs(elsewhere - [red, green, blue]).max() > 50


def test_every_colour_and_every_kind_can_be_drawn():
    rng = Random(3)
    for kind in KINDS[1:]:
        for colour in COLOURS:
            shown = Scene("single", 1, 1, (Thing(kind, colour, 0.5, 0.5, 0.8),))
            empty = Scene("blank", 1, 1)
            assert draw(rng, shown, 56, 56).std() > draw(rng, empty, 56, 56).std()
    assert set(SHADES) == set(COLOURS)


def test_the_frames_of_a_video_differ_only_where_something_moved():
    moved = Scene("single", 1, 1, (Thing("circle", "red", 0.75, 0.75, 0.4),))

    first, second = draw_frames(Random(4), [RED_DOT, moved], 112, 112)

    top_first, top_second = first[:30].astype(int), second[:30].astype(int)
    assert abs(top_first - top_second).max() < 40
    assert abs(_pixel(first, 0.25, 0.75) - _pixel(second, 0.25, 0.75)).max() > 50


def test_the_four_patches_of_a_cell_lie_together():
    grid = Grid(2, 3)
    width, height = grid.pixels
    rows, columns = np.mgrid[0:height, 0:width]
    picture = np.stack((rows // 14, columns // 14, rows * 0), axis=-1).astype(np.uint8)

    found = patches(picture).reshape(-1, 3, 14 * 14)

    assert found.shape[0] == grid.num_tokens * 4
    assert np.array_equal(found[:, :2, 0], patch_coordinates(grid))
    assert (found[:, :2] == found[:, :2, :1]).all()
    assert patch_coordinates(grid)[:5].tolist() == [[0, 0], [0, 1], [1, 0], [1, 1], [0, 2]]


def test_text_goes_on_after_the_largest_position_of_a_picture():
    media = 5

    found = positions([1, media, media, media, media, media, media, 2], (media,), Grid(2, 3), 1)

    assert found.tolist() == [
        [0, 1, 1, 1, 1, 1, 1, 4],
        [0, 1, 1, 1, 2, 2, 2, 4],
        [0, 1, 2, 3, 1, 2, 3, 4],
    ]


def test_cells_are_labelled_with_what_covers_them():
    labels = cell_labels(RED_DOT, Grid(4, 4))

    kinds = labels.kinds.reshape(4, 4)
    assert kinds[:2].tolist() == [[0] * 4, [0] * 4]
    assert kinds[2:, :2].tolist() == [[KINDS.index("circle")] * 2] * 2
    assert set(labels.colours) == {0, 1 + COLOURS.index("red")}
    assert labels.centres.sum() == 1
    assert labels.centres.reshape(4, 4)[3, 1] == 1
    rng = Random(5)
    for _ in range(200):
        shown = scene(rng, 1.0)
        assert cell_labels(shown, Grid(4, 4)).centres.sum() == len(shown.things)
