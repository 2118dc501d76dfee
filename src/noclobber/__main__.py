"""`python -m noclobber` is the command line."""

import sys

from noclobber.cli import main

sys.exit(main())
