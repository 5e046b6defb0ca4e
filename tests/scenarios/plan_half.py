"""What plan_half runs: `make DIR` writes a data set of several directories; `read MOUNT ORDER`
reads it epoch after epoch, as the workers of a loader do, until two epochs in a row have fetched no
more than what has no room, and says so when that never comes."""
import json
import os
import subprocess
import sys
import threading
import time

FILES = 1024
BYTES = 48 << 10
WORKERS = 4
BATCH = 32
STEP_S = 0.02  # what a GPU takes a batch
FIRST = 4  # epochs before: what streams hold is counted every two seconds
SLACK = 0.15  # of the set: the part of DRAM that files only pass through, and open segments


def make(folder):
    for number in range(FILES):
        name = os.path.join(folder, f"d{number // 100:02}", f"{number:04}")
        os.makedirs(os.path.dirname(name), exist_ok=True)
        with open(name, "wb") as f:
            f.write(b"%04d" % number * (BYTES // 4))


def status():
    out = subprocess.check_output([os.environ["FOREBAY"], "status", "--json"])
    return json.loads(out)["daemons"][0]


def read_file(path):
    fd = os.open(path, os.O_RDONLY)
    data = os.read(fd, BYTES)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)
    assert data == os.path.basename(path).encode() * (BYTES // 4), f"{path}: wrong bytes"


class Epoch:
    """Batches, dealt out to workers in turn, two of them ahead for each."""

    def __init__(self, mount, names):
        self.mount = mount
        self.batches = [names[i:i + BATCH] for i in range(0, len(names), BATCH)]
        self.read = [threading.Event() for _ in self.batches]
        self.taken = 0
        self.changed = threading.Condition()
        self.failed = None

    def work(self, worker):
        for no in range(worker, len(self.batches), WORKERS):
            with self.changed:
                self.changed.wait_for(lambda no=no: no < self.taken + 2 * WORKERS)
            try:
                for name in self.batches[no]:
                    read_file(os.path.join(self.mount, name))
            except (AssertionError, OSError) as e:
                self.failed = e
            self.read[no].set()

    def run(self):
        workers = [threading.Thread(target=self.work, args=(w,)) for w in range(WORKERS)]
        for worker in workers:
            worker.start()
        for no, event in enumerate(self.read):
            event.wait()
            time.sleep(STEP_S)
            with self.changed:
                self.taken = no + 1
                self.changed.notify_all()
        for worker in workers:
            worker.join()
        if self.failed:
            raise self.failed


def read(mount, order):
    epochs = {}
    with open(order, encoding="ascii") as f:
        for line in f:
            number, name = line.split()
            epochs.setdefault(int(number), []).append(name)
    held = sum(tier["budget_bytes"] for tier in status()["tiers"]) / (FILES * BYTES)
    assert 0.4 < held < 0.7, f"the cache has room for {held:.0%}"
    shares = []
    for number in range(40):
        before = status()["counters"]["source_read_bytes"]
        Epoch(mount, epochs[number]).run()
        after = status()["counters"]["source_read_bytes"]
        shares.append((after - before) / (FILES * BYTES))
        if number >= FIRST and max(shares[-2:]) <= 1 - held + SLACK:
            return
    sys.exit(f"room for {held:.0%}, fetched an epoch: " + " ".join(f"{s:.0%}" for s in shares))


if sys.argv[1] == "make":
    make(sys.argv[2])
else:
    read(*sys.argv[2:])
