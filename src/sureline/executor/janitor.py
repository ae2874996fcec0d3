"""A directory that does not outlive its process, even one that is killed.

A shell waits for the end of a pipe that only this process holds, and then removes the directory.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile

_SCRIPT = 'cat > /dev/null; rm -rf -- "$0"; sleep 1; rm -rf -- "$0"'
"""Twice: workers that end at the same time may still be writing."""


class Janitor:
    def __init__(self, prefix: str) -> None:
        self.directory = tempfile.mkdtemp(prefix=prefix)
        try:
            self._shell: subprocess.Popen[bytes] | None = subprocess.Popen(
                ["/bin/sh", "-c", _SCRIPT, self.directory],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                start_new_session=True,
            )
        except OSError:  # no process to spare: then a kill leaves the directory behind
            self._shell = None

    def close(self) -> None:
        """Remove the directory now."""
        shutil.rmtree(self.directory, ignore_errors=True)
        shell, self._shell = self._shell, None
        if shell is not None:
            shell.kill()
            if shell.stdin is not None:
                shell.stdin.close()
            shell.wait()

    def forget(self) -> None:
        """In a forked process: the directory is the parent's."""
        shell, self._shell = self._shell, None
        if shell is not None:
            if shell.stdin is not None:
                shell.stdin.close()
            shell.returncode = 0  # not our child: nobody here may wait for it
