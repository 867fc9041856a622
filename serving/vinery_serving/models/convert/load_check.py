"""`python -m` this module and a folder: whether OpenVINO reads a converted model.

A process of its own, because OpenVINO is large. The last line of its output has the reason.
"""

import sys
from pathlib import Path

from vinery_serving.prompting.folder import ModelFolder, UnusableFolder

_PROBE = "Hello"


def check(folder: Path) -> None:
    """Raises `UnusableFolder`, and RuntimeError of OpenVINO."""
    import openvino
    import openvino_genai

    ModelFolder.read(folder)
    tokenizer = openvino_genai.Tokenizer(str(folder))
    if tokenizer.encode(_PROBE).input_ids.size == 0:
        raise UnusableFolder(f"The tokenizer of {folder} makes no tokens of {_PROBE!r}.")
    core = openvino.Core()
    for graph in sorted(folder.glob("*.xml")):
        # Those of the tokenizer need GenAI's extension, and were read above.
        if graph.stem not in ("openvino_tokenizer", "openvino_detokenizer"):
            core.read_model(graph)


if __name__ == "__main__":
    try:
        check(Path(sys.argv[1]))
    except (UnusableFolder, RuntimeError) as error:
        sys.exit(" ".join(str(error).split()))
