"""The capture writer: ``python -m harness.planes.userspace.writer FD=PATH...``.

It moves the content of each pipe to its file until the pipe ends. The kernel moves the bytes, not this process.
"""

import contextlib
import os
import select
import signal
import sys

CHUNK_BYTES = 1 << 20


def main() -> None:
    """Write every file until its pipe ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the running stage handles Ctrl-C
    poll = select.poll()
    files: dict[int, int] = {}
    for argument in sys.argv[1:]:
        pipe, path = argument.split("=", 1)
        files[int(pipe)] = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        poll.register(int(pipe), select.POLLIN)
    while files:
        for descriptor, _ in poll.poll():
            if not move(descriptor, files[descriptor]):
                poll.unregister(descriptor)
                os.close(files.pop(descriptor))


def move(pipe: int, file: int) -> int:
    """Move the content of the pipe; return 0 at its end."""
    with contextlib.suppress(OSError):
        return os.splice(pipe, file, CHUNK_BYTES)
    content = os.read(pipe, CHUNK_BYTES)  # a file system without splice
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(file, rest) :]
    return len(content)


if __name__ == "__main__":
    main()
