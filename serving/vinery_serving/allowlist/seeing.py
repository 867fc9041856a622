"""What the loaded vision models make of media: the size that they see, and the tokens."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from vinery_serving.catalog.models import ServedModel
from vinery_serving.core.media import SEEN_PIXELS, Detail, MediaKind
from vinery_serving.media.probe import Finding
from vinery_serving.prompting.folder import ModelFolder, UnusableFolder
from vinery_serving.prompting.vision import VisionProcessor
from vinery_serving.prompting.vision_families import load_processor


def vision_models() -> list[ServedModel]:
    """Return the loaded vision models by name: one query."""
    return [each for each in ServedModel.objects.filter(is_loaded=True) if each.takes_pictures]


def choose(name: str | None) -> ServedModel | None:
    """Return the vision model with this name, by default the first one; None: none is loaded.
    Raises ValueError for another name."""
    models = vision_models()
    if not name:
        return models[0] if models else None
    known = {model.name: model for model in models}
    if name not in known:
        others = f" Loaded: {', '.join(known)}." if known else ""
        raise ValueError(f"{name} is not a loaded vision model.{others}")
    return known[name]


@dataclass(frozen=True, slots=True)
class Seen:
    """What a model makes of a file. `is_ok` is False if it refuses the file."""

    is_ok: bool
    text: str


def seen_by(model: ServedModel, found: Finding) -> Seen:
    """Return what the model makes of a file that was decoded, with `detail` auto."""
    try:
        processor = load_processor(ModelFolder.read(Path(model.folder)))
    except UnusableFolder as error:
        return Seen(False, str(error))
    assert processor is not None, "the folder has no vision model any more"
    processor = processor.within(model.options.get("max_image_pixels") or 0)
    kind = MediaKind(found.kind)
    if kind is MediaKind.VIDEO and not processor.takes_video:
        return Seen(False, f"{model} takes pictures only, no videos")
    return Seen(True, f"{model} sees {_seen(processor, kind, found)}")


def _seen(processor: VisionProcessor, kind: MediaKind, found: Finding) -> str:
    fit = partial(processor.fit, detail=Detail.AUTO, max_pixels=SEEN_PIXELS[kind])
    if kind is MediaKind.DOCUMENT:
        return _pages(processor, [fit(*size) for size in found.sizes])
    width, height = fit(found.width, found.height)
    if kind is MediaKind.VIDEO:
        num_tokens = processor.num_tokens(width, height, found.number)
        return f"{found.number} frames of {width} x {height} pixels: {num_tokens} tokens"
    return f"{width} x {height} pixels: {processor.num_tokens(width, height)} tokens"


def _pages(processor: VisionProcessor, sizes: Sequence[tuple[int, int]]) -> str:
    num_tokens = sum(processor.num_tokens(*size) for size in sizes)
    width, height = sizes[0]
    return (
        f"{len(sizes)} pages, the first of {width} x {height} pixels: {num_tokens} tokens, and "
        "those of their text"
    )
