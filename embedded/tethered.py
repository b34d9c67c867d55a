"""Become another program that Linux stops when our parent dies, however it dies.

A script of its own, run as `python -I -S tethered.py PARENT SIGNAL UID GID PROGRAM ARGUMENTS...`, since
`preexec_fn` may deadlock in a process with threads. It changes the account too (-1 keeps it), because a
change of account clears the tether. Imports the standard library only; costs some 25 ms per start.
"""

from __future__ import annotations

import ctypes
import os
import sys

PR_SET_PDEATHSIG = 1


def main(parent: int, signal: int, uid: int, gid: int, command: list[str]) -> None:
    """Drop to the account, tie our life to the parent's, and become the command."""
    libc = ctypes.CDLL(None, use_errno=True)
    if uid >= 0:
        os.setgroups([])
        os.setgid(gid)
        os.setuid(uid)
    if libc.prctl(PR_SET_PDEATHSIG, signal) != 0:
        raise OSError(ctypes.get_errno(), "prctl refused")
    if os.getppid() != parent:  # it died before the tether held
        raise SystemExit(1)
    os.execv(command[0], command)  # noqa: S606 -- becoming that program is the purpose


if __name__ == "__main__":
    PARENT, SIGNAL, UID, GID = (int(argument) for argument in sys.argv[1:5])
    main(PARENT, SIGNAL, UID, GID, sys.argv[5:])
