"""Averages two checkpoints of one training, which can be better than either of them."""

from pathlib import Path

from training.checkpoint import load
from training.fitting import save
from training.tokenization import load_tokenizer


def average(first: Path, second: Path, share: float, folder: Path) -> None:
    """Write the checkpoint `(1 - share) * first + share * second` to `folder`."""
    model = load(first)
    weights = load(second).state_dict()
    model.load_state_dict(
        {
            name: (1 - share) * value + share * weights[name]
            for name, value in model.state_dict().items()
        }
    )
    save(model, load_tokenizer(second), folder)
