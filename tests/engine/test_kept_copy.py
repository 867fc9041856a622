"""The copy of a model's folder is made again only when it is not that of the folder."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from vinery_serving.engine.graph import GraphFeatures
from vinery_serving.engine.kept_copy import kept

FEATURES = GraphFeatures(has_logits_hook=True, salt_modulus=7)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "openvino_model.xml").write_text("<net/>")
    return folder


class Copies:
    """How often a copy was made."""

    def __init__(self, target: Path) -> None:
        self.target = target
        self.number = 0

    def write(self) -> GraphFeatures:
        self.number += 1
        self.target.mkdir(exist_ok=True)
        return FEATURES


@pytest.fixture
def copies(tmp_path: Path) -> Copies:
    return Copies(tmp_path / "hooked")


def rewrite(folder: Path) -> None:
    (folder / "openvino_model.xml").write_text("<net />")


def touch(folder: Path) -> None:
    os.utime(folder / "openvino_model.xml", ns=(1, 1))


def add(folder: Path) -> None:
    (folder / "tokenizer.json").touch()


def test_a_copy_of_the_same_folder_is_kept_with_what_it_supports(
    folder: Path, copies: Copies
) -> None:
    found = [kept(folder, copies.target, copies.write) for _ in range(3)]

    assert found == [FEATURES] * 3
    assert copies.number == 1


@pytest.mark.parametrize("change", [rewrite, touch, add])
def test_a_copy_of_a_changed_folder_is_made_again(
    folder: Path, copies: Copies, change: Callable[[Path], None]
) -> None:
    kept(folder, copies.target, copies.write)
    change(folder)
    kept(folder, copies.target, copies.write)

    assert copies.number == 2


def test_a_copy_that_was_not_finished_is_made_again(folder: Path, copies: Copies) -> None:
    def fail() -> GraphFeatures:
        raise KeyboardInterrupt

    kept(folder, copies.target, copies.write)
    touch(folder)
    with pytest.raises(KeyboardInterrupt):
        kept(folder, copies.target, fail)
    kept(folder, copies.target, copies.write)

    assert copies.number == 2


def test_a_damaged_note_is_no_note(folder: Path, copies: Copies) -> None:
    kept(folder, copies.target, copies.write)
    copies.target.with_suffix(".json").write_text("{")

    assert kept(folder, copies.target, copies.write) == FEATURES
    assert copies.number == 2
