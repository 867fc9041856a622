"""Turns a checkpoint into the folder that ships: int8 OpenVINO graphs, template, defaults."""

import json
import shutil
import tempfile
from pathlib import Path

from optimum.exporters.openvino import main_export
from transformers import Qwen3ForCausalLM

from training.quantisation import quantise
from training.rendering import TEMPLATE_PATH

# Greedy, so that a client which names no temperature gets the trained answer.
GENERATION_DEFAULTS = {"do_sample": False, "eos_token_id": 2, "pad_token_id": 0}
FILE_MODE = 0o644


def export(checkpoint: Path, folder: Path, *, sharpness: float) -> None:
    """Write the model in `checkpoint` to `folder`, replacing what was there.

    `sharpness` multiplies the logits: greedy answers stay as they are, and sampling at a
    temperature of one does what sampling at one over `sharpness` would have done.
    """
    with tempfile.TemporaryDirectory() as scratch:
        sharpened = Path(scratch, "checkpoint")
        shutil.copytree(checkpoint, sharpened)
        _sharpen(sharpened, sharpness)
        exported = Path(scratch, "exported")
        main_export(
            str(sharpened),
            output=exported,
            task="text-generation-with-past",
            convert_tokenizer=True,
        )
        quantise(exported / "openvino_model.xml")
        _finish(exported)
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(exported, folder)


def _sharpen(checkpoint: Path, sharpness: float) -> None:
    """Scale the last norm, which scales all logits alike."""
    model = Qwen3ForCausalLM.from_pretrained(checkpoint)
    model.model.norm.weight.data *= sharpness
    model.save_pretrained(checkpoint)


def _finish(folder: Path) -> None:
    """Put in the template and the defaults, and make every file an ordinary one."""
    shutil.copyfile(TEMPLATE_PATH, folder / "chat_template.jinja")
    defaults = json.dumps(GENERATION_DEFAULTS, indent=2) + "\n"
    (folder / "generation_config.json").write_text(defaults, encoding="utf-8")
    for path in folder.iterdir():
        path.chmod(FILE_MODE)
