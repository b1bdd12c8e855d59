"""``python -m amfs`` is the ``amfs`` command, and so is ``main``, which the installed script calls.

Must not import anything of weight at module level: Ctrl-C is a line, not a traceback, from here on.
"""

import sys


def main() -> int:
    """The exit status. Raises nothing but SystemExit."""
    try:
        from amfs.cli.main import main as command

        return command()
    except KeyboardInterrupt:  # the command itself tells of later ones
        sys.stderr.write("amfs: interrupted\n")
        return 130


if __name__ == "__main__":
    sys.exit(main())
