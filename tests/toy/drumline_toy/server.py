"""A server that runs the toy's supervisors, in a folder that is their drumline folder.

Run as `python -m drumline_toy.server FOLDER`. Supervisors outlive it.
"""

from __future__ import annotations

import os
import shutil
import socketserver
import subprocess
import sys
from pathlib import Path

from drumline.runtime.unix import short_name
from drumline.store.folder import RunFolder
from drumline.supervise.remote import answer
from drumline_toy.remote import LENGTH, SOCKET


class _Handler(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        """Answer one message."""
        what, _, run = self.rfile.readline(100).decode().strip().partition(" ")
        (length,) = LENGTH.unpack(self.rfile.read(LENGTH.size))
        message = self.rfile.read(length)
        folder = Path.cwd() / "runs" / run
        if what == "forget":
            shutil.rmtree(folder, ignore_errors=True)
            found = b""
        elif what == "start":  # in a separate process: a supervisor is forked from a process without threads
            argv = [sys.executable, "-P", "-m", "drumline.supervise.remote", what, str(folder)]
            found = subprocess.run(argv, input=message, stdout=subprocess.PIPE, check=False).stdout
        else:
            found = answer(RunFolder(folder), message)
        self.wfile.write(LENGTH.pack(len(found)) + found)


class _Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True
    request_queue_size = 64


def main(folder: str) -> None:
    """Serve until the process is ended."""
    os.chdir(folder)
    os.environ["DRUMLINE_HOME"] = folder
    Path(SOCKET).unlink(missing_ok=True)
    with short_name(Path(folder) / SOCKET) as name, _Server(name, _Handler) as server:
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        server.serve_forever()


if __name__ == "__main__":
    main(sys.argv[1])
