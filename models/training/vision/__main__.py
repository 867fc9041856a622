"""Make, export and measure tiny-vision.

Run `python -m training.vision COMMAND --help` from the folder `models/` for the settings of a
command. `look` trains the vision encoder alone, `talk` trains the whole model on talks; each goes
on from the checkpoint that it finds.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

MODELS = Path(__file__).resolve().parents[2]
CHECKPOINT = MODELS / "work" / "tiny-vision"
FOLDER = MODELS / "tiny-vision"


def parser() -> argparse.ArgumentParser:
    """All commands and their settings."""
    root = argparse.ArgumentParser(
        prog="python -m training.vision",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = root.add_subparsers(required=True, metavar="COMMAND")

    samples = commands.add_parser("samples", help="print some talks and draw their pictures")
    samples.add_argument("out", type=Path, help="folder for the pictures")
    samples.add_argument("--count", type=int, default=10, help="how many talks (default: 10)")
    samples.add_argument("--seed", type=int, default=1, help="seed of the talks (default: 1)")
    samples.set_defaults(run=_samples)

    look = commands.add_parser("look", help="train the vision encoder on the labels of cells")
    _add_training_settings(look, minutes=20, rate=2e-3, sinking=0.0)
    look.set_defaults(run=_train, share_looking=1.0)

    talk = commands.add_parser("talk", help="train the whole model on talks")
    _add_training_settings(talk, minutes=90, rate=1.5e-3, sinking=0.5)
    talk.add_argument("--share-looking", type=float, default=0.1, help="of batches (default: 0.1)")
    talk.set_defaults(run=_train)

    export = commands.add_parser("export", help="turn the checkpoint into OpenVINO files")
    export.add_argument("--checkpoint", type=Path, default=CHECKPOINT, help="its folder")
    export.add_argument("--out", type=Path, default=FOLDER, help="folder to write to")
    export.set_defaults(run=_export)

    evaluate = commands.add_parser("evaluate", help="count the exact answers of the export")
    evaluate.add_argument("--model", type=Path, default=FOLDER, help="folder of the export")
    evaluate.add_argument("--talks", type=int, default=400, help="unseen talks (default: 400)")
    evaluate.add_argument("--seed", type=int, default=987_654, help="seed of the talks")
    evaluate.add_argument("--misses", type=int, default=0, help="wrong answers to print")
    evaluate.set_defaults(run=_evaluate)
    return root


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command that `arguments` name; without them, those of the process."""
    settings = parser().parse_args(arguments)
    settings.run(settings)


def _add_training_settings(
    command: argparse.ArgumentParser, *, minutes: float, rate: float, sinking: float
) -> None:
    add = command.add_argument
    add("--minutes", type=float, default=minutes, help=f"wall time (default: {minutes})")
    add("--rate", type=float, default=rate, help=f"peak learning rate (default: {rate})")
    add("--warmup", type=int, default=100, help="steps up to the peak rate (default: 100)")
    add("--sinking", type=float, default=sinking, help=f"share at the end (default: {sinking})")
    add("--looking-weight", type=float, default=0.3, help="of cell labels (default: 0.3)")
    add("--pictures", type=int, default=48, help="per batch without talk (default: 48)")
    add("--talks", type=int, default=24, help="per batch (default: 24)")
    add("--largest", type=int, default=16, help="most cells of a picture (default: 16)")
    add("--threads", type=int, default=1, help="CPU threads (default: 1)")
    add("--drawers", type=int, default=1, help="processes that draw pictures (default: 1)")
    add("--device", default="cpu", help="cpu or cuda (default: cpu)")
    add("--seed", type=int, default=1, help="of weights and pictures (default: 1)")
    add("--checkpoint", type=Path, default=CHECKPOINT, help="its folder")


def _samples(settings: argparse.Namespace) -> None:
    from random import Random

    from PIL import Image

    from training.vision.drawing import draw_frames
    from training.vision.rendering import render
    from training.vision.talks import talk

    rng = Random(settings.seed)
    settings.out.mkdir(parents=True, exist_ok=True)
    for index in range(settings.count):
        one = talk(rng, index % 3, 1.0, is_video=index % 10 == 9)
        print(f"--- {index}", render(one.messages()), sep="\n")
        for number, scene in enumerate(one.scenes):
            (picture,) = draw_frames(rng, [scene], 112, 112)
            Image.fromarray(picture).save(settings.out / f"{index}-{number}.png")


def _train(settings: argparse.Namespace) -> None:
    import torch

    from training.vision.batches import Mixture
    from training.vision.fitting import Schedule, Trainer, fit

    torch.set_num_threads(settings.threads)
    schedule = Schedule(
        minutes=settings.minutes,
        learning_rate=settings.rate,
        num_warmup_steps=settings.warmup,
        share_sinking=settings.sinking,
        looking_weight=settings.looking_weight,
    )
    mixture = Mixture(
        seed=settings.seed,
        pictures_per_batch=settings.pictures,
        talks_per_batch=settings.talks,
        share_looking=settings.share_looking,
        largest=settings.largest,
        num_drawers=settings.drawers,
    )
    fit(Trainer(settings.checkpoint, settings.seed, settings.device), schedule, mixture)


def _export(settings: argparse.Namespace) -> None:
    from training.vision.export import export
    from training.vision.fitting import Trainer

    export(Trainer(settings.checkpoint, seed=1), settings.out)


def _evaluate(settings: argparse.Namespace) -> None:
    from training.vision import evaluation

    score = evaluation.evaluate(settings.model, settings.talks, settings.seed)
    print(score.table())
    for miss in score.misses[: settings.misses]:
        print(f"  {miss.kind}: {miss.question!r} expected {miss.expected!r}, got {miss.text!r}")


if __name__ == "__main__":
    main()
