"""What an administrator reads when an export fails: the cause and what to do."""

import re
from typing import Final

from vinery_serving.models.convert.checkpoint import Checkpoint
from vinery_serving.models.convert.child import ChildFailed

# A pattern in the exporter's output, and a sentence.
_KNOWN: Final = (
    (
        r"trust_remote_code|contains custom code",
        "The checkpoint needs code that it brings. If you trust its authors and have read it, "
        "convert with trust_remote_code.",
    ),
    (
        r"MAX_TRANSFORMERS_VERSION|maximum allowed Transformers|max version|"
        r"MIN_TRANSFORMERS_VERSION|minimum required",
        "The exporter refuses the release of transformers in this environment.",
    ),
    (
        r"Error while deserializing header|InvalidHeader|MetadataIncompleteBuffer|"
        r"UnpicklingError|unexpected EOF",
        "A weights file of the checkpoint is damaged or cut. Fetch it again.",
    ),
    (
        r"size mismatch for|ignore_mismatched_sizes",
        "The weights do not fit config.json: they belong to another model.",
    ),
    (
        r"Can't load tokenizer|tokenizer.*(?:not found|missing)|Couldn't instantiate the backend",
        "The checkpoint has no tokenizer that can be converted. Fetch its tokenizer files.",
    ),
    (r"No space left on device", "The disk became full. Free some, and convert again."),
    (
        r"No module named '?(?P<name>[\w.]+)",
        "The checkpoint needs the Python package {name}, which the environment does not have.",
    ),
)


def explained(error: ChildFailed, checkpoint: Checkpoint) -> str:
    """Return a sentence, and the last line of the exporter."""
    end = f"The exporter ended with: {error.last_line}"
    for pattern, sentence in _KNOWN:
        if found := re.search(pattern, error.output):
            return f"{sentence.format(**found.groupdict())} {end}"
    return f"The export of {checkpoint.architecture.model_type} failed. {end}"
