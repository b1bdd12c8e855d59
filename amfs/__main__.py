"""``python -m amfs`` is the ``amfs`` command."""

import sys

from amfs.cli.main import main

sys.exit(main())
