"""Make, export and measure tiny-embed and tiny-rerank.

Run `python -m training.similarity COMMAND --help` from the folder `models/` for the settings of a
command.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

MODELS = Path(__file__).resolve().parents[2]
TRAINED = MODELS / "work" / "tiny-embed"
NAMES = ("tiny-embed", "tiny-rerank")


def parser() -> argparse.ArgumentParser:
    """All commands and their settings."""
    root = argparse.ArgumentParser(
        prog="python -m training.similarity",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = root.add_subparsers(required=True, metavar="COMMAND")
    train = commands.add_parser("train", help="train the encoder of both from random weights")
    export = commands.add_parser("export", help="turn what was trained into OpenVINO files")
    evaluate = commands.add_parser("evaluate", help="count the right orders of the export")
    train.set_defaults(run=_train)
    for command, run in ((export, _export), (evaluate, _evaluate)):
        command.add_argument("name", choices=NAMES)
        command.set_defaults(run=run)
    train.add_argument("--steps", type=int, default=4000, help="default: 4000")
    train.add_argument("--batch", type=int, default=32, help="meanings in a step (default: 32)")
    train.add_argument("--rate", type=float, default=2e-3, help="peak rate (default: 2e-3)")
    train.add_argument("--seed", type=int, default=1, help="of weights and texts (default: 1)")
    train.add_argument("--threads", type=int, default=1, help="CPU threads (default: 1)")
    evaluate.add_argument("--cases", type=int, default=1000, help="default: 1000")
    evaluate.add_argument("--seed", type=int, default=987_654, help="of the cases")
    evaluate.add_argument("--misses", type=int, default=0, help="wrong orders to print")
    return root


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command that `arguments` name; without them, those of the process."""
    settings = parser().parse_args(arguments)
    settings.run(settings)


def _train(settings: argparse.Namespace) -> None:
    import torch

    from training.similarity.fitting import fit_embedder

    torch.set_num_threads(settings.threads)
    fit_embedder(
        TRAINED,
        num_steps=settings.steps,
        batch=settings.batch,
        rate=settings.rate,
        seed=settings.seed,
    )


def _export(settings: argparse.Namespace) -> None:
    from training.similarity.export import export_embedder, export_reranker

    export = export_embedder if settings.name == "tiny-embed" else export_reranker
    export(TRAINED, MODELS / settings.name)


def _evaluate(settings: argparse.Namespace) -> None:
    from training.similarity.evaluation import evaluate

    result = evaluate(MODELS / settings.name, settings.seed, settings.cases)
    print(result.table())
    for miss in result.misses[: settings.misses]:
        print(f"  {miss.query!r} -> {miss.texts}")


if __name__ == "__main__":
    main()
