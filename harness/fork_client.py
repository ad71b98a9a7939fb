"""Stands in for a new Python process: has a fork server start it, and lives and ends as it does.

Run as a script, with the standard library only, so that it starts in a few milliseconds:
``python -I -S fork_client.py SOCKET [-m MODULE | -c CODE | SCRIPT] ARGUMENTS...``. The new process gets all open files
of this one under their numbers. A signal that ends this process ends the other one, and so does the end of the process
that started this one; the exit code is passed on. Where the server has died, this one waits for the next; where there
will be none, it becomes the process asked for.
`harness.fork_server` is the other side.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import sys

FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
LOOK_SECONDS = 1.0


def _inherited_files() -> list[int]:
    files = []
    for name in os.listdir("/proc/self/fd"):
        try:
            if os.get_inheritable(int(name)):
                files.append(int(name))
        except OSError:  # that of the listing itself
            continue
    return files


def main() -> int:
    """Start the process, wait for its end, and return its exit code."""
    parent = os.getppid()
    address, *arguments = sys.argv[1:]
    files = _inherited_files()
    request = {"arguments": arguments, "environment": dict(os.environ), "folder": os.getcwd(), "files": files}
    body = json.dumps(request).encode()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        try:
            server.connect(address)
        except OSError:
            os.execv(sys.executable, [sys.executable, *arguments])
        socket.send_fds(server, [struct.pack("!I", len(body))], files)
        server.sendall(body)
        for number in FORWARDED:
            signal.signal(number, lambda sent, _: server.sendall(bytes([sent])))
        server.settimeout(LOOK_SECONDS)
        answer = b""
        while len(answer) < 4:
            try:
                part = server.recv(4 - len(answer))
            except TimeoutError:
                if os.getppid() != parent:
                    return 1  # who waits for the process is gone: let go of it, which ends it
                continue
            except ConnectionError:
                part = b""
            if not part:
                return 1  # the server is gone, and its children with it
            answer += part
    code: int = struct.unpack("!i", answer)[0]
    if code < 0:  # ended by a signal: end in the same way
        if -code in FORWARDED:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return code


if __name__ == "__main__":
    sys.exit(main())
