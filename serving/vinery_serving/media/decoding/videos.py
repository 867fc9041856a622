"""Decodes frames of a video with FFmpeg's libraries, from memory alone. Pillow decodes animated
pictures.

A video may be long, and a model sees few of its frames. So all packets are read first, which costs
little. Then a decoder gets the packets from a key frame to the wanted frame. If these are too many,
key frames are taken instead.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO
from itertools import accumulate, chain, groupby
from typing import Any, Final, TypeAlias

import av
import av.logging
import numpy as np
from av.container import InputContainer
from av.packet import Packet
from av.video.codeccontext import VideoCodecContext
from av.video.frame import VideoFrame
from av.video.stream import VideoStream

from vinery_serving.core.media import Clip, MediaKind
from vinery_serving.media import decoding
from vinery_serving.media.decoding.pictures import read_animation

# The decoders that may run, by FFmpeg's names.
_CODECS: Final = ("h264", "hevc", "vp8", "vp9", "libdav1d", "mpeg4", "mjpeg")
_CODEC_NAMES: Final = "H.264, HEVC, VP8, VP9, AV1, MPEG-4 or Motion JPEG"
_MAX_PACKETS: Final = 120_000  # of an hour at 30 frames a second: 108,000

_Packet: TypeAlias = "Packet[VideoStream]"  # PyAV's class is generic in its type hints alone

av.logging.set_libav_level(av.logging.PANIC)


@dataclass(frozen=True, slots=True)
class _Run:
    """Packets from a key frame on, and the sorted times of wanted frames, in the stream's unit."""

    packets: Sequence[_Packet]
    times: Sequence[int]


def read_clip(data: bytes, limits: decoding.DecodeLimits, fit: decoding.Fit) -> Clip:
    """Return frames of a video or an animation. Raises `Unreadable` and what `fit` raises."""
    file_type = decoding.check_type(data, MediaKind.VIDEO, limits.max_bytes)
    read = _read_video if file_type.kind is MediaKind.VIDEO else read_animation
    return read(data, file_type, limits, fit)


def _read_video(
    data: bytes, file_type: decoding.FileType, limits: decoding.DecodeLimits, fit: decoding.Fit
) -> Clip:
    with decoding.reading(file_type.name):
        container = _opened(data, file_type)
        stream = _video_stream(container)
        context = stream.codec_context
        decoding.check_size(context.width, context.height, limits.max_pixels)
        packets = _packets(container, stream, len(data), limits)
        context.options = {"max_pixels": str(limits.max_pixels)}  # also for frames of another size
        context.thread_count = 1
        frames = _decoded(context, _runs(packets, context.width * context.height, limits))
        first = next(frames, None)
    if first is None:
        raise decoding.Unreadable("has no frame that can be decoded. Export the video again")
    num_turns = round(first.rotation / 90)
    width, height = decoding.fitted(fit, _turned((first.width, first.height), num_turns))
    pictures, times_s = [], []
    with decoding.reading(file_type.name):
        for frame in chain([first], frames):
            pictures.append(_rgb(frame, _turned((width, height), num_turns), num_turns))
            times_s.append(float((frame.pts or 0) * (stream.time_base or 0)))
    return Clip(len(pictures), height, width, b"".join(pictures), decoding.rate_of(times_s))


def _turned(size: tuple[int, int], num_turns: int) -> tuple[int, int]:
    return size[::-1] if num_turns % 2 else size


def _opened(data: bytes, file_type: decoding.FileType) -> InputContainer:
    return av.open(
        BytesIO(data),
        "r",
        format=file_type.codec,
        io_open=_refuse_other_files,
        metadata_errors="replace",
        container_options={
            "max_streams": "32",
            "codec_whitelist": ",".join(_CODECS),
            "protocol_whitelist": "",
        },
    )


def _refuse_other_files(*_: Any) -> Any:
    raise decoding.Unreadable("refers to another file, which is not read. Export it as one file")


def _video_stream(container: InputContainer) -> VideoStream:
    if not container.streams.video:
        raise decoding.Unreadable("has no video in it")
    stream = container.streams.video[0]
    codec = stream.codec_context.codec.name if stream.codec_context else "unknown"
    if codec not in _CODECS:
        raise decoding.Unreadable(
            f"has video of codec {codec}, which is not read: send {_CODEC_NAMES}"
        )
    return stream


def _packets(
    container: InputContainer, stream: VideoStream, num_bytes: int, limits: decoding.DecodeLimits
) -> list[_Packet]:
    """Return the packets of all frames, in the order of decoding."""
    _check_duration((container.duration or 0) / 1_000_000, limits)
    packets: list[_Packet] = []
    most_bytes = 2 * num_bytes  # an index may list the same bytes many times
    for number, packet in enumerate(container.demux(stream)):
        most_bytes -= packet.size
        if most_bytes < 0 or number > _MAX_PACKETS:  # the last packet is empty
            raise decoding.Unreadable("has more frames than can be read. Send a shorter video")
        if packet.size:
            packets.append(packet)
    times = [_time_of(packet, index) for index, packet in enumerate(packets)]
    if times and stream.time_base:
        _check_duration(float((max(times) - min(times)) * stream.time_base), limits)
    return packets


def _check_duration(duration_s: float, limits: decoding.DecodeLimits) -> None:
    if duration_s > limits.max_duration_s:
        raise decoding.Unreadable(
            f"lasts {duration_s:.1f} s, and at most {limits.max_duration_s:.1f} s are read. Send a "
            "shorter video"
        )


def _time_of(packet: _Packet, index: int) -> int:
    if packet.pts is not None:
        return packet.pts
    return index if packet.dts is None else packet.dts


def _runs(packets: Sequence[_Packet], num_pixels: int, limits: decoding.DecodeLimits) -> list[_Run]:
    """Raises `Unreadable` if even the wanted key frames have too many pixels."""
    times = [_time_of(packet, index) for index, packet in enumerate(packets)]
    shown = sorted(range(len(packets)), key=times.__getitem__)
    wanted = sorted(shown[each] for each in decoding.evenly(len(shown), limits.max_frames))
    # The last key frame up to each packet.
    numbers = (index if each.is_keyframe else 0 for index, each in enumerate(packets))
    keys = list(accumulate(numbers, max))
    groups = [(key, list(group)) for key, group in groupby(wanted, key=keys.__getitem__)]
    max_packets = limits.max_video_pixels // num_pixels
    if sum(group[-1] - key + 1 for key, group in groups) > max_packets:
        groups = [(key, [key]) for key, _ in groups]
    if len(groups) > max_packets:
        raise decoding.Unreadable(
            "takes too long to decode. Send a shorter video, or one of fewer pixels"
        )
    return [
        _Run(packets[key : group[-1] + 1], sorted(times[each] for each in group))
        for key, group in groups
    ]


def _decoded(context: VideoCodecContext, runs: Iterable[_Run]) -> Iterator[VideoFrame]:
    """Yield the wanted frames. If a frame does not come out, the next frame is taken."""
    for run in runs:
        times = list(run.times)
        for packet in (*run.packets, None):
            for frame in context.decode(packet):
                if times and (frame.pts is None or frame.pts >= times[0]):
                    yield frame
                    times = [each for each in times[1:] if frame.pts is None or each > frame.pts]
        context.flush_buffers()


def _rgb(frame: VideoFrame, size: tuple[int, int], num_turns: int) -> bytes:
    """Return uint8 RGB, scaled to `size` and then turned counterclockwise by quarters."""
    width, height = size
    scaled = frame.reformat(
        width=width, height=height, format="rgb24", interpolation="BICUBIC", threads=1
    )
    return np.rot90(scaled.to_ndarray(), num_turns).tobytes()
