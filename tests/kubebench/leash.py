"""Becomes another program that the kernel ends with its parent, however the parent ends.

Run as a script: `python leash.py PARENT PROGRAM ARGUMENTS…`. What is asked for stays in force over exec. The parent is
the *thread* that started us: it must live as long as the program should.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(sys.argv[1]):  # it died before we asked
        sys.exit(1)
    os.execv(sys.argv[2], sys.argv[2:])


main()
