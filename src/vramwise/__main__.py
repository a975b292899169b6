"""`python -m vramwise` is the same as `vramwise`."""

import sys

from vramwise.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
