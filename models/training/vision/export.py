"""Turns a checkpoint into the folder that ships: int8 OpenVINO graphs, template, processor."""

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

from optimum.exporters.openvino import main_export

from training.quantisation import quantise
from training.vision.architecture import IMAGE_PREPROCESSOR, VIDEO_PREPROCESSOR
from training.vision.fitting import Trainer
from training.vision.rendering import TEMPLATE_PATH

# Greedy, so that a client which names no temperature gets the trained answer.
GENERATION_DEFAULTS = {"do_sample": False, "eos_token_id": 2, "pad_token_id": 0}
FILE_MODE = 0o644


def export(trainer: Trainer, folder: Path) -> None:
    """Write the trainer's model to `folder`, replacing what was there."""
    with tempfile.TemporaryDirectory() as scratch:
        prepared, exported = Path(scratch, "prepared"), Path(scratch, "exported")
        trainer.save_model(prepared)
        _write_processors(prepared)
        main_export(
            str(prepared), output=exported, task="image-text-to-text", convert_tokenizer=True
        )
        for path in sorted(exported.glob("openvino_*_model.xml")):
            quantise(path)
        _finish(exported)
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(exported, folder)


def _write_processors(folder: Path) -> None:
    _write(folder / "preprocessor_config.json", IMAGE_PREPROCESSOR)
    _write(folder / "video_preprocessor_config.json", VIDEO_PREPROCESSOR)


def _finish(folder: Path) -> None:
    """Put in the template, the processors and the defaults; make every file an ordinary one."""
    _write_processors(folder)
    (folder / "processor_config.json").unlink(missing_ok=True)
    shutil.copyfile(TEMPLATE_PATH, folder / "chat_template.jinja")
    _write(folder / "generation_config.json", GENERATION_DEFAULTS)
    for path in folder.iterdir():
        path.chmod(FILE_MODE)


def _write(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
