"""`python -m adaptive_spec`: the command line, for a Python whose scripts are not on the path."""

from adaptive_spec.commands.cli import main

if __name__ == "__main__":
    main()
