"""The settings of conversions, as the process of a job reads them."""

from typing import Final

# Builds of torch without CUDA, which are ten times smaller.
_TORCH_INDEX: Final = "https://download.pytorch.org/whl/cpu"


def torch_index(setting: str) -> str:
    """Return the index that VINERY_JOB_TORCH_INDEX means; empty: pip's own only."""
    return "" if setting == "none" else setting or _TORCH_INDEX
