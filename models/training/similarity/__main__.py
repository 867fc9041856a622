"""Runs the command line of `training.similarity`."""

from training.similarity.cli import main

if __name__ == "__main__":
    main()
