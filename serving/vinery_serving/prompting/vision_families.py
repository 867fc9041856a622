"""Which processor a folder's model type has."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from vinery_serving.core.picture_sizes import SIZED_TYPES, picture_sizes
from vinery_serving.prompting.folder import ModelFolder, UnusableFolder, read_object
from vinery_serving.prompting.qwen_vision import QwenProcessor
from vinery_serving.prompting.sized_vision import SizedProcessor
from vinery_serving.prompting.vision import VisionProcessor

_TEXT_EMBEDDINGS: Final = "openvino_text_embeddings_model.xml"
# Whether GenAI's video tokens are known beforehand: Qwen3-VL writes times between the frames.
_QWEN: Final = {"qwen2_vl": True, "qwen2_5_vl": True, "qwen3_vl": False}


def load_processor(folder: ModelFolder) -> VisionProcessor | None:
    """Return the processor; None for a text model. Raises `UnusableFolder`."""
    if not (folder.path / _TEXT_EMBEDDINGS).is_file():
        return None
    model_type = folder.model_type or ""
    if model_type in _QWEN:
        image, video = _values(folder.path)
        return QwenProcessor.of(image, video, takes_video=_QWEN[model_type])
    config = read_object(folder.path / "config.json")
    try:
        sizes = picture_sizes(
            model_type, config, read_object(folder.path / "preprocessor_config.json")
        )
    except ValueError as error:
        raise UnusableFolder(f"{folder.path} cannot be served. {error}") from None
    if sizes is None:
        known = ", ".join((*_QWEN, *SIZED_TYPES))
        raise UnusableFolder(
            f"{folder.path} has a vision model of the type {model_type or 'unknown'!r}. Vinery "
            f"serves vision models of the types {known}: of others it does not know how many "
            "tokens a picture has."
        )
    return SizedProcessor.of(model_type, sizes)


def _values(path: Path) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """The values for pictures and for videos, from the files that GenAI reads."""
    both = read_object(path / "processor_config.json")
    image, video = both.get("image_processor"), both.get("video_processor")
    if isinstance(image, dict) and isinstance(video, dict):
        return image, video
    return (
        read_object(path / "preprocessor_config.json"),
        read_object(path / "video_preprocessor_config.json"),
    )
