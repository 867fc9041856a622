"""Videos that tests encode."""

from fractions import Fraction
from io import BytesIO
from typing import Any

import av
from PIL import Image

_FRAME: Any = av.VideoFrame  # its types differ between versions


def video(
    frames: list[Image.Image],
    codec: str = "libx264",
    container: str = "mp4",
    rate: int = 10,
    rotation: int = 0,
    **options: Any,
) -> bytes:
    file = BytesIO()
    with av.open(file, "w", format=container) as output:
        stream: Any = output.add_stream(codec, rate=rate, options=options)
        stream.width, stream.height, stream.pix_fmt = *frames[0].size, "yuv420p"
        if rotation:
            stream.set_display_rotation(rotation)
        for index, frame in enumerate(frames):
            shown = _FRAME.from_image(frame)
            shown.pts, shown.time_base = index, Fraction(1, rate)
            output.mux(stream.encode(shown))
        output.mux(stream.encode())
    return file.getvalue()
