"""Make, export and measure the reference models.

Run `python -m training COMMAND --help` from the folder `models/` for the settings of a command.
`all` does everything for one model: it trains, exports and evaluates.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from random import Random

MODELS = Path(__file__).resolve().parent.parent
WORK = MODELS / "work"
NAMES = ("tiny-chat", "tiny-draft")


def parser() -> argparse.ArgumentParser:
    """All commands and their settings."""
    root = argparse.ArgumentParser(
        prog="python -m training",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = root.add_subparsers(required=True, metavar="COMMAND")

    samples = commands.add_parser("samples", help="print some lessons")
    samples.add_argument("--count", type=int, default=10, help="how many lessons (default: 10)")
    samples.add_argument("--seed", type=int, default=1, help="seed of the lessons (default: 1)")
    samples.set_defaults(run=_samples)

    tokenizer = commands.add_parser("tokenizer", help="train a new tokenizer")
    tokenizer.add_argument("out", type=Path, help="folder to write it to")
    tokenizer.add_argument("--tokens", type=int, default=3072, help="vocabulary size in tokens")
    tokenizer.add_argument("--lessons", type=int, default=20_000, help="lessons to learn it from")
    tokenizer.add_argument("--seed", type=int, default=1, help="seed of the lessons (default: 1)")
    tokenizer.set_defaults(run=_tokenizer)

    train = commands.add_parser("train", help="train a model, from scratch or from an export")
    _add_training_settings(train)
    train.set_defaults(run=_train)

    average = commands.add_parser("average", help="average two checkpoints of one training")
    average.add_argument("first", type=Path, help="folder of a checkpoint")
    average.add_argument("second", type=Path, help="folder of a later checkpoint")
    average.add_argument("out", type=Path, help="folder to write to")
    average.add_argument("--share", type=float, default=0.5, help="of the second (default: 0.5)")
    average.set_defaults(run=_average)

    export = commands.add_parser("export", help="turn a checkpoint into OpenVINO files")
    _add_export_settings(export)
    export.set_defaults(run=_export)

    evaluate = commands.add_parser("evaluate", help="count the exact answers of exported models")
    _add_evaluation_settings(evaluate)
    evaluate.set_defaults(run=_evaluate)

    everything = commands.add_parser("all", help="train, export and evaluate one model")
    _add_training_settings(everything)
    _add_sharpness(everything)
    everything.set_defaults(run=_everything)
    return root


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command that `arguments` name; without them, those of the process."""
    settings = parser().parse_args(arguments)
    settings.run(settings)


def _add_training_settings(command: argparse.ArgumentParser) -> None:
    add = command.add_argument
    add("name", choices=NAMES, help="the model, which decides its shape")
    add("--start-from", type=Path, help="exported model or checkpoint to go on from")
    add(
        "--tokenizer",
        type=Path,
        default=MODELS / "tiny-chat",
        help="folder with tokenizer.json (default: the shipped one)",
    )
    add("--tokens", type=float, default=32e6, help="length in tokens, padding included (32e6)")
    add("--minutes", type=float, help="longest wall time in minutes (default: no limit)")
    add("--rate", type=float, default=1.5e-3, help="peak learning rate (default: 1.5e-3)")
    add("--warmup", type=int, default=60, help="steps up to the peak rate (default: 60)")
    add("--lessons", type=int, default=64, help="lessons per optimiser step (default: 64)")
    add("--max-tokens", type=int, default=1100, help="longest lesson in tokens (default: 1100)")
    add("--batch", type=int, default=2048, help="tokens per forward pass (default: 2048)")
    add("--threads", type=int, default=2, help="CPU threads (default: 2)")
    add("--seed", type=int, default=1, help="seed of weights and lessons (default: 1)")
    add("--checkpoint", type=Path, help="folder of the checkpoint (default: work/NAME)")


def _add_export_settings(command: argparse.ArgumentParser) -> None:
    command.add_argument("name", choices=NAMES, help="the model")
    command.add_argument("--checkpoint", type=Path, help="its checkpoint (default: work/NAME)")
    command.add_argument("--out", type=Path, help="folder to write to (default: NAME)")
    _add_sharpness(command)


def _add_sharpness(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--sharpness", type=float, default=1.0, help="factor of all logits (default: 1)"
    )


def _add_evaluation_settings(command: argparse.ArgumentParser) -> None:
    add = command.add_argument
    add("model", type=Path, help="folder of an exported model")
    add("--draft", type=Path, help="folder of a draft model to measure beside it")
    add("--draft-tokens", type=int, default=5, help="tokens drafted per step (default: 5)")
    add("--conversations", type=int, default=600, help="unseen conversations (default: 600)")
    add("--seed", type=int, default=987_654, help="seed of the conversations (default: 987654)")
    add("--threads", type=int, default=1, help="CPU threads (default: 1)")
    add("--misses", type=int, default=0, help="wrong answers to print (default: none)")


def _samples(settings: argparse.Namespace) -> None:
    from training.lessons import lesson

    rng = Random(settings.seed)
    for _ in range(settings.count):
        print("".join(f"[{part.weight}]{part.text}" for part in lesson(rng)), end="\n\n")


def _tokenizer(settings: argparse.Namespace) -> None:
    from training.tokenization import train_tokenizer

    tokenizer = train_tokenizer(
        vocabulary_size=settings.tokens, num_lessons=settings.lessons, seed=settings.seed
    )
    settings.out.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(settings.out / "tokenizer.json"))


def _train(settings: argparse.Namespace) -> None:
    import torch

    from training.checkpoint import load
    from training.fitting import SHAPES, Schedule, fit, new_model
    from training.tokenization import load_tokenizer

    torch.set_num_threads(settings.threads)
    tokenizer = load_tokenizer(settings.tokenizer)
    if settings.start_from:
        model = load(settings.start_from)
    else:
        model = new_model(SHAPES[settings.name], tokenizer.get_vocab_size(), settings.seed)
    schedule = Schedule(
        num_tokens=int(settings.tokens),
        learning_rate=settings.rate,
        lessons_per_step=settings.lessons,
        max_tokens_per_lesson=settings.max_tokens,
        tokens_per_batch=settings.batch,
        num_warmup_steps=settings.warmup,
        seed=settings.seed,
        max_minutes=settings.minutes,
    )
    fit(model, tokenizer, schedule, _checkpoint(settings))


def _average(settings: argparse.Namespace) -> None:
    from training.fitting import average

    average(settings.first, settings.second, settings.share, settings.out)


def _export(settings: argparse.Namespace) -> None:
    from training.export import export

    export(
        _checkpoint(settings), settings.out or MODELS / settings.name, sharpness=settings.sharpness
    )


def _evaluate(settings: argparse.Namespace) -> None:
    from training import evaluation
    from training.evaluation import Engine, Sampling

    engine = Engine(settings.model, num_threads=settings.threads)
    unseen = evaluation.generated_questions(settings.conversations, settings.seed)
    measured = {
        "unseen conversations, greedy": evaluation.score(engine, unseen),
        "hand-written cases, greedy": evaluation.score(engine, evaluation.case_questions()),
    }
    for temperature in (0.7, 1.0):
        sampling = Sampling(temperature=temperature)
        measured[f"facts at temperature {temperature}"] = evaluation.score(
            engine, evaluation.fact_questions(), sampling
        )
    measured["replies under a JSON schema"] = evaluation.schema_score(engine)
    for title, result in measured.items():
        print(f"{title}\n{result.table()}")
        for miss in result.misses[: settings.misses]:
            print(f"  {miss.question.heading}: …{miss.question.prompt[-160:]!r}")
            print(f"    expected {miss.question.expected!r}\n    answered {miss.text!r}")
    if settings.draft:
        drafted = Engine(settings.model, draft=settings.draft, num_threads=settings.threads)
        gain = evaluation.speedup(engine, drafted, settings.draft_tokens)
        print(
            f"with a draft: {gain.num_tokens} tokens in {gain.num_steps} steps, "
            f"{gain.num_changed} texts changed"
        )


def _everything(settings: argparse.Namespace) -> None:
    _train(settings)
    settings.out = MODELS / settings.name
    _export(settings)
    main(["evaluate", str(settings.out), "--threads", str(settings.threads)])


def _checkpoint(settings: argparse.Namespace) -> Path:
    checkpoint: Path = settings.checkpoint or WORK / settings.name
    return checkpoint


if __name__ == "__main__":
    main()
