"""What epoch_log_kill runs: `make DIR` writes a data set; `read MOUNT ORDER FROM COUNT [PID]` reads
so many files of a list, checks them, and kills the daemon PID right after the last one."""
import hashlib
import json
import os
import signal
import subprocess
import sys
import time

FILES = 400
BYTES = 60_000
AHEAD = 32  # read between looks at the plan
WAIT_S = 60


def content(name):
    return hashlib.sha256(name.encode()).digest() * (BYTES // 32)


def make(folder):
    os.makedirs(folder)
    for number in range(FILES):
        with open(os.path.join(folder, f"{number:04}"), "wb") as f:
            f.write(content(f"{number:04}"))


def step():
    """What a GPU would do meanwhile: the plan catches up."""
    end = time.monotonic() + WAIT_S
    while time.monotonic() < end:
        plans = json.loads(subprocess.check_output([os.environ["FOREBAY"], "streams",
                                                    "--json"]))["plans"]
        if plans and plans[0]["ready"] >= AHEAD:
            return
        time.sleep(0.02)


def read(mount, order, first, count, pid=None):
    with open(order, encoding="ascii") as f:
        names = [line.split()[1] for line in f]
    for no, name in enumerate(names[int(first):int(first) + int(count)]):
        fd = os.open(os.path.join(mount, name), os.O_RDONLY)
        data = os.read(fd, BYTES)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)
        assert data == content(name), f"{name}: wrong bytes"
        if no % AHEAD == AHEAD - 1:
            step()
    if pid:
        os.kill(int(pid), signal.SIGKILL)


if sys.argv[1] == "make":
    make(sys.argv[2])
else:
    read(*sys.argv[2:])
