"""`python -m culver` is `culver`."""

import sys

from culver.cli import main

sys.exit(main())
