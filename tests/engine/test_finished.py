"""The counts of finished generations: cancelled tokens, and the file for a lost gateway."""

from __future__ import annotations

import json
from pathlib import Path
from typing import cast

from msgspec import structs

from serving.engine.finished import FinishedGenerations
from serving.engine.generation import Generation
from serving.transport.server import Connection
from tests.engine.in_process import generation

GATEWAY, OTHER = cast(Connection, object()), cast(Connection, object())


def finished(id_: int, request_id: str, num_tokens: int, connection: Connection) -> Generation:
    result = generation([7] * 5)
    result.connection = connection
    result.submit = structs.replace(result.submit, id=id_, request_id=request_id)
    result.tokens, result.num_cached = [1] * num_tokens, 3
    return result


def test_unused_tokens_are_counted_once(tmp_path: Path) -> None:
    generations = FinishedGenerations(tmp_path)
    generations.add(finished(1, "r1", 9, GATEWAY))

    assert generations.take_unused(GATEWAY, 1, 4) == 5
    assert generations.take_unused(GATEWAY, 1, 4) == 0
    assert generations.take_unused(GATEWAY, 2, 0) == 0
    assert generations.take_unused(OTHER, 1, 0) == 0


def test_the_counts_of_a_lost_gateway_are_written_without_those_of_others(tmp_path: Path) -> None:
    generations = FinishedGenerations(tmp_path)
    for each in [
        finished(1, "r1", 9, GATEWAY),
        finished(2, "", 9, GATEWAY),
        finished(3, "r3", 0, GATEWAY),
        finished(4, "r4", 9, OTHER),
    ]:
        generations.add(each)
    generations.take_unused(GATEWAY, 1, 7)

    generations.write_lost(GATEWAY)
    generations.write_lost(GATEWAY)

    (file,) = tmp_path.glob("*.lost")
    assert [json.loads(line) for line in file.read_text().splitlines()] == [["r1", 5, 3, 7]]


def test_without_usage_journals_no_file_is_written(tmp_path: Path) -> None:
    generations = FinishedGenerations(None)
    generations.add(finished(1, "r1", 9, GATEWAY))

    generations.write_lost(GATEWAY)

    assert list(tmp_path.iterdir()) == []
