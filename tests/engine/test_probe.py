"""Reading cached prompt lengths from the positions of a step."""

from __future__ import annotations

from pathlib import Path

import pytest

from serving.engine.probe import num_cached, write_probed_folder


def test_an_uncached_prompt_begins_at_position_zero() -> None:
    assert num_cached([0, 1, 2, 3], 0, [(4, True)]) == [0]


def test_a_cached_prompt_begins_after_what_was_cached() -> None:
    assert num_cached([32, 33, 34], 0, [(35, True)]) == [32]


def test_rows_of_decoding_generations_come_first_and_are_skipped() -> None:
    assert num_cached([70, 12, 64, 65], 2, [(66, True)]) == [64]


def test_several_prompts_follow_each_other() -> None:
    assert num_cached([0, 1, 2, 32, 33, 0], 0, [(3, True), (34, True), (9, True)]) == [0, 32, 0]


def test_a_prompt_that_continues_from_an_earlier_step_is_passed_over() -> None:
    assert num_cached([5, 6, 7, 32, 33], 0, [(8, False), (34, True)]) == [None, 32]


def test_prompts_beyond_the_budget_of_the_step_stay_unknown() -> None:
    assert num_cached([0, 1], 0, [(5, True), (5, True)]) == [0, None]


def test_an_unexpected_order_says_nothing_rather_than_something_wrong() -> None:
    assert num_cached([3, 9, 1, 0], 0, [(6, True)]) == [None]


def test_a_file_that_is_no_graph_is_refused_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "openvino_model.xml").write_text("no graph")

    with pytest.raises(RuntimeError, match=r"openvino_model\.xml is not an OpenVINO graph"):
        write_probed_folder(tmp_path, tmp_path / "probed")
