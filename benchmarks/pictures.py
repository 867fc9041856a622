"""`python -m benchmarks.pictures FOLDER`: what pictures do to the streams beside them.

One engine process has 32 streams of text. In every second round 16 requests with pictures arrive in
its first third, as fast as the socket takes them. The gaps between a stream's tokens are compared.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from array import array
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Final

import numpy as np

from vinery_serving.core.media import Detail
from vinery_serving.engine.config import EngineConfig
from vinery_serving.engine.options import EngineOptions
from vinery_serving.node.engine_process import EngineProcess
from vinery_serving.prompting.assets import ModelAssets
from vinery_serving.transport.client import EngineClient
from vinery_serving.transport.messages import MediaInput, SamplingParams, Submit, TokenOutput

_NUM_STREAMS: Final = 32
_NUM_TOKENS: Final = 400
_NUM_REQUESTS: Final = 16
_NUM_ROUNDS: Final = 6
_TIMEOUT_S: Final = 120.0


async def main(folder: Path, num_pictures: int) -> None:
    """Print the gaps; each request has `num_pictures` of the largest size."""
    assets = ModelAssets.load(folder)
    with tempfile.TemporaryDirectory() as home:
        config = EngineConfig(
            name="pictures",
            folder=folder,
            device="CPU",
            socket_path=Path(home) / "e.sock",
            cache_dir=Path(home) / "cache",
            max_context=assets.folder.max_context or 0,
            options=EngineOptions(),
        )
        process, client = EngineProcess(config), EngineClient(config.socket_path)
        await process.start()
        client.open()
        try:
            await client.wait_connected(_TIMEOUT_S)
            await _measure(client, assets, num_pictures)
        finally:
            await client.close()
            await process.end()


async def _measure(client: EngineClient, assets: ModelAssets, num_pictures: int) -> None:
    p99s: dict[bool, list[float]] = {False: [], True: []}
    for number in range(2 * _NUM_ROUNDS):
        has_pictures = number % 2 == 1
        requests = [
            _question(client, assets, num_pictures, seed=100 * number + at)
            for at in range(_NUM_REQUESTS if has_pictures else 0)
        ]
        gaps, first_s = await _round(client, requests)
        p50, p99, most = np.percentile(gaps, (50, 99, 100)) * 1e3
        p99s[has_pictures].append(float(p99))
        waits = f", first tokens of pictures within {max(first_s):.2f} s" if first_s else ""
        named = "with pictures" if has_pictures else "without"
        print(f"{named}: gaps p50 {p50:.1f} ms, p99 {p99:.1f} ms, longest {most:.1f} ms{waits}")
    ratio = median(p99s[True]) / median(p99s[False])
    print(f"p99 with pictures by p99 without: {ratio:.2f} (medians of {_NUM_ROUNDS} rounds)")


async def _round(
    client: EngineClient, requests: Sequence[Submit]
) -> tuple[list[float], list[float]]:
    """Return the gaps of all streams, and when each picture had its first token, in seconds."""
    gaps: list[float] = []
    streams = [_read(client, _stream(client), gaps) for _ in range(_NUM_STREAMS)]
    running = asyncio.gather(*streams)
    await asyncio.sleep(0.5)
    answers = [_read(client, each, []) for each in requests]
    first_s = await asyncio.gather(*answers)
    await running
    return gaps, list(first_s)


async def _read(client: EngineClient, submit: Submit, gaps: list[float]) -> float:
    """Read an answer to its end. Returns the time to its first token."""
    began_at = time.monotonic()
    output, last_at, first_s = client.submit([submit]), 0.0, 0.0
    while True:
        for update in await output.next(_TIMEOUT_S):
            if not isinstance(update, TokenOutput):
                continue
            now = time.monotonic()
            if last_at:
                gaps.append(now - last_at)
            first_s, last_at = first_s or now - began_at, now
            if update.finish is not None:
                return first_s


def _stream(client: EngineClient) -> Submit:
    ids = array("i", range(10, 42)).tobytes()
    return Submit(
        client.new_id(),
        ids,
        SamplingParams(),
        _NUM_TOKENS,
        _TIMEOUT_S,
        ignore_eos=True,
        lane=(1, 1),
    )


def _question(client: EngineClient, assets: ModelAssets, num_pictures: int, seed: int) -> Submit:
    vision, tokenizer = assets.vision, assets.tokenizer
    assert vision is not None
    width, height = vision.fit(4000, 4000, Detail.AUTO, 10**9)
    (start_id, pad_id, end_id) = tokenizer.encode(vision.markup.image)
    ids, media = [10] * 8, []
    for number in range(num_pictures):
        noise = np.random.default_rng(seed + 1000 * number).integers(0, 255, (height, width, 3))
        ids.append(start_id)
        grid = vision.grid(width, height)
        media.append(
            MediaInput(len(ids), grid, height, width, pixels=noise.astype(np.uint8).tobytes())
        )
        ids += [pad_id] * media[-1].num_tokens + [end_id]
    prompt_ids = array("i", ids).tobytes()
    return Submit(
        client.new_id(),
        prompt_ids,
        SamplingParams(),
        8,
        _TIMEOUT_S,
        media=tuple(media),
        lane=(2, 2),
    )


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1))
