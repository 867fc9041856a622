"""`python -m training COMMAND`; see `python -m training --help`."""

from training.cli import main

if __name__ == "__main__":
    main()
