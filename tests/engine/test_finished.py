"""The counts of finished generations: cancelled tokens, and the file for a lost gateway."""

import json
import os
from pathlib import Path
from typing import cast

from msgspec import structs

from tests.engine.in_process import generation
from vinery_accounts.usage.journal import sweep_drafts
from vinery_serving.engine.finished import FinishedGenerations
from vinery_serving.engine.generation import Generation
from vinery_serving.transport.server import Connection

GATEWAY, OTHER = cast(Connection, object()), cast(Connection, object())


def finished(id_: int, request_id: str, num_tokens: int, connection: Connection) -> Generation:
    result = generation([7] * 5)
    result.connection = connection
    result.submit = structs.replace(result.submit, id=id_, request_id=request_id)
    result.tokens, result.num_cached = [1] * num_tokens, 3
    return result


def test_unused_tokens_are_counted_once_and_those_of_a_lost_gateway_are_written(tmp_path):
    generations = FinishedGenerations(None)
    generations.add(finished(1, "r1", 9, GATEWAY))
    generations.write_lost(GATEWAY)
    assert list(tmp_path.iterdir()) == []

    generations = FinishedGenerations(tmp_path)
    generations.add(finished(1, "r1", 9, GATEWAY))

    assert generations.take_unused(GATEWAY, 1, 4) == 5
    assert generations.take_unused(GATEWAY, 1, 4) == 0
    assert generations.take_unused(GATEWAY, 2, 0) == 0
    assert generations.take_unused(OTHER, 1, 0) == 0

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


def test_the_counts_of_a_lost_gateway_are_written_on_a_full_disk(tmp_path, monkeypatch):
    generations = FinishedGenerations(tmp_path)
    generations.add(finished(1, "r1", 9, GATEWAY))
    (draft,) = tmp_path.iterdir()
    assert draft.stat().st_size >= 1024 * 1024

    real_pwrite = os.pwrite

    def only_allocated(fd: int, content: bytes, offset: int) -> int:
        return real_pwrite(fd, content[: os.fstat(fd).st_size - offset], offset)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", only_allocated)
    monkeypatch.setattr(os, "posix_fallocate", full)
    monkeypatch.setattr(Path, "write_bytes", full)
    generations.write_lost(GATEWAY)

    (file,) = tmp_path.iterdir()
    assert file.suffix == ".lost"
    assert [json.loads(line) for line in file.read_text().splitlines()] == [["r1", 5, 3, 9]]


def test_recovery_keeps_the_reserved_file_of_a_living_engine_alone(tmp_path: Path) -> None:
    generations = FinishedGenerations(tmp_path)

    sweep_drafts(tmp_path)
    assert len(list(tmp_path.iterdir())) == 1

    os.close(generations._draft._fd)  # as the kernel does
    sweep_drafts(tmp_path)
    assert list(tmp_path.iterdir()) == []
