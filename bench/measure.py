"""What bench/run measures with: programs that print JSON, fio, epochs, medians of interleaved runs."""
import json
import os
import shutil
import statistics
import subprocess
import time

from mounts import Failed, bench_program

DROP_CACHES = "/proc/sys/vm/drop_caches"
COMPACT = "/proc/sys/vm/compact_memory"


def output_of(command):
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          check=False)
    if done.returncode != 0:
        raise Failed(f"{os.path.basename(command[0])}: {(done.stderr or done.stdout).strip()}")
    return done.stdout


def program(name, *args):
    """Runs a program of bench/ and returns the last object that it printed."""
    words = [str(arg) for arg in args]
    return json.loads(output_of([bench_program(name)] + words).strip().split("\n")[-1])


def epoch(folder, listing, seed, readers=1, order="own"):
    """Microseconds a file."""
    return program("reader", folder, "--list", listing, "--seed", seed, "--threads", readers,
                   "--order", order)["us_per_file"]


def can_drop_caches():
    return os.access(DROP_CACHES, os.W_OK)


def drop_caches():
    os.sync()
    with open(DROP_CACHES, "w", encoding="ascii") as f:
        f.write("3\n")
    time.sleep(0.2)


def tidy_memory():
    """Nothing is cached, and free memory lies in long stretches again. Which pages a file is given
    depends on what earlier programs left: the first that is loaded takes the scraps, and a warm
    read from scraps takes up to half as long again. This gives all the same start."""
    if can_drop_caches() and os.access(COMPACT, os.W_OK):
        drop_caches()
        with open(COMPACT, "w", encoding="ascii") as f:
            f.write("1\n")


HUGE_PAGES = "/proc/sys/vm/nr_hugepages"
HUGE_PAGES_WANTED = 16

FIO = ["fio", "--name=bench", "--ioengine=io_uring", "--direct=1", "--output-format=json"]


HUGE = ["--mem=shmhuge"]


def has_huge_pages():
    """Whether fio can be given some for its buffers, as ours have. Some virtual disks take each
    page of 4 KiB as a piece of its own: fio reads two and a half times as fast with huge ones."""
    return os.access(HUGE_PAGES, os.W_OK)


def set_huge_pages(count):
    """Returns how many there are then: memory may be in pieces."""
    with open(HUGE_PAGES, "r+", encoding="ascii") as f:
        f.write(str(count))
    with open(HUGE_PAGES, encoding="ascii") as f:
        return int(f.read())


def fio(words, huge=False):
    """What fio says of its only job. Huge pages are reserved meanwhile, and only as long."""
    if not huge:
        return json.loads(output_of(FIO + words))["jobs"][0]
    with open(HUGE_PAGES, encoding="ascii") as f:
        before = int(f.read())
    try:
        if set_huge_pages(before + HUGE_PAGES_WANTED) < before + HUGE_PAGES_WANTED:
            raise Failed("no huge pages for fio: memory is in pieces")
        return json.loads(output_of(FIO + HUGE + words))["jobs"][0]
    finally:
        set_huge_pages(before)


def fio_command(words):
    return " ".join(FIO + words)


def fio_random(path, size, seconds):
    return [f"--filename={path}", f"--size={size}", "--rw=randread", "--bs=128k", "--iodepth=16",
            "--time_based", f"--runtime={seconds}", "--randrepeat=0", "--readonly"]


def fio_sequential(path, size, seconds):
    return [f"--filename={path}", f"--size={size}", "--rw=read", "--bs=1m", "--iodepth=4",
            "--time_based", f"--runtime={seconds}", "--readonly"]


def fio_writing(path, size):
    return [f"--filename={path}", f"--size={size}", "--rw=write", "--bs=1m", "--iodepth=8",
            "--fallocate=native", "--end_fsync=1"]


def fio_read(words, huge=False):
    """Bytes a second out of a file that is there."""
    return fio(words, huge)["read"]["bw_bytes"]


def quiet():
    """What was written or removed before is no longer of anybody's time."""
    os.sync()
    time.sleep(0.5)


def fio_write(path, size, huge=False):
    """Bytes a second into a new file, which is removed again."""
    try:
        return fio(fio_writing(path, size), huge)["write"]["bw_bytes"]
    finally:
        if os.path.exists(path):
            os.unlink(path)


def make_files(folder, count, size):
    """Files of random bytes below `folder`; returns their names."""
    block = os.urandom(size + count)
    names = []
    for i in range(count):
        name = f"class{i % 20:02}/sample{i:06}.bin"
        path = os.path.join(folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as f:
            f.write(block[i:i + size])
        names.append(name)
    os.sync()
    return names


class Samples:
    """What was seen of one quantity, a value a round."""

    def __init__(self, values=()):
        self.values = list(values)

    def add(self, value):
        self.values.append(value)

    @property
    def median(self):
        return statistics.median(self.values)

    def over(self, other):
        """The ratio of each round: numerator and denominator were measured next to each other."""
        return Samples(a / b for a, b in zip(self.values, other.values))

    def text(self, fmt="{:.2f}", scale=1):
        low, high = min(self.values), max(self.values)
        if len(self.values) == 1:
            return fmt.format(self.median * scale)
        return (f"{fmt.format(self.median * scale)} "
                f"({fmt.format(low * scale)}–{fmt.format(high * scale)})")


def free_bytes(folder):
    return shutil.disk_usage(folder).free
