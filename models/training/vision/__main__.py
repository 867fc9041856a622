"""`python -m training.vision COMMAND`; see `python -m training.vision --help`."""

from training.vision.cli import main

if __name__ == "__main__":
    main()
