"""`python -m kubebench`: build the programs of the control plane."""

from __future__ import annotations

import sys

from kubebench.programs import main

sys.exit(main(sys.argv[1:]))
