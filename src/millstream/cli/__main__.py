"""Runs the command line as `python -m millstream.cli`."""

from millstream.cli.main import main

if __name__ == "__main__":
    main()
