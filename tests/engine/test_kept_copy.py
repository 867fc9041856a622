"""The copy of a model's folder is made again only when it is not that of the folder."""

import os
from pathlib import Path

import pytest

from tests.tables import table
from vinery_serving.engine.graph import GraphFeatures, kept

FEATURES = GraphFeatures(has_logits_hook=True, salt_modulus=7)


class Copies:
    """A model's folder, and how often a copy was made of it."""

    def __init__(self, home: Path) -> None:
        self.folder, self.target = home / "model", home / "hooked"
        self.number = 0
        self.folder.mkdir(parents=True)
        self.graph.write_text("<net/>")

    @property
    def graph(self) -> Path:
        return self.folder / "openvino_model.xml"

    def keep(self) -> GraphFeatures:
        return kept(self.folder, self.target, self.write)

    def write(self) -> GraphFeatures:
        self.number += 1
        self.target.mkdir(exist_ok=True)
        return FEATURES

    def touch(self) -> None:
        os.utime(self.graph, ns=(1, 1))


@table(
    "name, change, number",
    [
        ("none", lambda _: None, 1),
        ("rewritten", lambda copies: copies.graph.write_text("<net />"), 2),
        ("touched", Copies.touch, 2),
        ("added", lambda copies: (copies.folder / "tokenizer.json").touch(), 2),
        ("damaged note", lambda copies: copies.target.with_suffix(".json").write_text("{"), 2),
    ],
)
def test_a_copy_is_made_again_after_a_change_alone(tmp_path, name, change, number):
    copies = Copies(tmp_path / name)
    assert copies.keep() == FEATURES
    change(copies)
    assert [copies.keep() for _ in range(2)] == [FEATURES] * 2
    assert copies.number == number


def test_a_copy_that_was_not_finished_is_made_again(tmp_path: Path) -> None:
    def fail() -> GraphFeatures:
        raise KeyboardInterrupt

    copies = Copies(tmp_path)
    copies.keep()
    copies.touch()
    with pytest.raises(KeyboardInterrupt):
        kept(copies.folder, copies.target, fail)
    copies.keep()
    assert copies.number == 2
