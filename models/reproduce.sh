#!/bin/sh
# Makes the reference models anew: environment, training, export and evaluation.
#
#   models/reproduce.sh                            both language models from scratch, some hours on
#                                                  2 cores
#   models/reproduce.sh --start-from tiny-chat     go on from the shipped weights instead
#   models/reproduce.sh vision                     tiny-vision, from scratch or from the checkpoint
#                                                  in models/work/tiny-vision
#   models/reproduce.sh similarity                 tiny-embed and tiny-rerank, about 15 minutes
#
# Other arguments are passed to `python -m training all tiny-chat`, or behind `vision` to
# `python -m training.vision talk`; `--help` of these lists them.
# It overwrites the models that it makes. Intermediate files go to models/work.
set -eu
cd "$(dirname "$0")"

# Makes the environment in folder $1 from the requirements in file $2, unless it is there.
prepare() {
    if [ ! -x "$1/bin/python" ]; then
        python3 -m venv "$1"
        "$1/bin/python" -m pip install --requirement "$2"
        # optimum-intel asks for torchvision, whose default build does not fit a CPU build of
        # torch and then breaks every import of transformers. Nothing here needs it.
        "$1/bin/python" -m pip uninstall --yes torchvision
    fi
}

if [ "${1:-}" = vision ]; then
    shift
    prepare work/venv-vision training/vision/requirements.txt
    python=work/venv-vision/bin/python
    "$python" -m training.vision look --looking-weight 1 --largest 9
    "$python" -m training.vision talk "$@"
    "$python" -m training.vision export
    "$python" -m training.vision evaluate
    exit
fi

if [ "${1:-}" = similarity ]; then
    shift
    prepare work/venv-vision training/vision/requirements.txt
    python=work/venv-vision/bin/python
    "$python" -m training.similarity train "$@"
    for name in tiny-embed tiny-rerank; do
        "$python" -m training.similarity export "$name"
        "$python" -m training.similarity evaluate "$name"
    done
    exit
fi

prepare work/venv requirements.txt
python=work/venv/bin/python
"$python" -m training all tiny-chat "$@"
"$python" -m training all tiny-draft --tokens 8e6
"$python" -m training evaluate tiny-chat --draft tiny-draft
