"""`python -m vramwise` is the same as `vramwise`."""

import sys

from vramwise.cli.main import command

if __name__ == "__main__":
    sys.exit(command())
