"""`python -m fiveways` is `fiveways`."""

import sys

from fiveways.cli import main

if __name__ == "__main__":
    sys.exit(main())
