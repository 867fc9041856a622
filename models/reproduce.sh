#!/bin/sh
# Makes the reference models anew: environment, training, export and evaluation.
#
#   models/reproduce.sh                            both models from scratch, some hours on 2 cores
#   models/reproduce.sh --start-from tiny-chat     go on from the shipped weights instead
#
# Arguments are passed to `python -m training all tiny-chat`; `--help` lists them.
# It overwrites models/tiny-chat and models/tiny-draft. Intermediate files go to models/work.
set -eu
cd "$(dirname "$0")"

python=work/venv/bin/python
if [ ! -x "$python" ]; then
    python3 -m venv work/venv
    "$python" -m pip install --requirement requirements.txt
    # optimum-intel asks for torchvision, whose default build does not fit a CPU build of torch
    # and then breaks every import of transformers. Nothing here needs it.
    "$python" -m pip uninstall --yes torchvision
fi

"$python" -m training all tiny-chat "$@"
"$python" -m training all tiny-draft --tokens 8e6
"$python" -m training evaluate tiny-chat --draft tiny-draft
