#!/usr/bin/python3
"""bench/mix_real.py - six jobs of the mix (src/sim/jobs_mix.c), really run through a mount.

    bench/mix_real.py [--forebay PROGRAM] [--dir DIR] [--scale N] [--json]

Jobs 2, 3, 4, 6, 9 and 14, on data another N times smaller (default 20), arrive with gaps of mean
3 s, read through a mount whose source takes 150 ms a request and gives 1 Gbit/s, and sleep for the
time they compute. Three times: with the cache as it is, with one LRU (patterns off, large files
read ahead), and without a cache. Caches hold about 35% of the data, two thirds of it in memory.
After each read the kernel is told to forget the file, or its page cache would answer in place of
the daemon. As root; with N = 20 it takes half an hour.
"""
import argparse
import bisect
import itertools
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time

FAULT = "latency=150ms,bandwidth=125M"
MEMORY_MIN = 128 << 20
KB = 1000


def sizes(count, mean, spread, lot):
    return [max(1, int(mean * lot.lognormvariate(-spread * spread / 2, spread)))
            for _ in range(count)]


class Set:
    """Files below a directory, as lists of paths."""

    def __init__(self, root, path, dirs, files, mean, spread=0.5):
        lot = random.Random(path)
        self.dirs = []
        self.bytes = 0
        for name in dirs:
            below = os.path.join(path, name)
            os.makedirs(os.path.join(root, below))
            self.dirs.append([])
            for file, size in zip(files, sizes(len(files), mean, spread, lot)):
                with open(os.path.join(root, below, file), "wb") as out:
                    out.write(lot.randbytes(min(size, 4096)) * (size // 4096 + 1))
                    out.truncate(size)
                self.dirs[-1].append(os.path.join(below, file))
                self.bytes += size
        self.all = [file for names in self.dirs for file in names]


def make(root, scale):
    """The data sets of the six jobs; structure as in src/sim/jobs_mix.c, fewer items."""
    months = [f"{1850 + m // 12}{1 + m % 12:02}" for m in range(max(120, 20000 // scale))]
    return {
        2: Set(root, "fashion-dataset", ["images"], [f"{i:05}.jpg" for i in range(44441 // scale)],
               340 * KB),
        3: Set(root, "air", ["stations"],
               [f"station{i:03}.csv" for i in range(max(120, 22650 // scale))], 64 * KB),
        4: Set(root, "ICOADS", months, [f"region_{i:02}.csv" for i in range(10)], 40 * KB),
        6: Set(root, "opt-125m", ["."], ["pytorch_model_0.bin"], 251000 * KB // 5, 0),
        9: Set(root, "imagenet/train", [f"n{i:08}" for i in range(100)],
               [f"img_{i:08}.JPEG" for i in range(max(1, 1280 // scale))], 110 * KB),
        14: Set(root, "lakebench", ["tables"],
                [f"table_{i:06}.csv" for i in range(100000 // scale)], 24 * KB, 1.2),
    }


def read(path):
    """All of a file, in reads of 1 MB; then the kernel forgets it."""
    fd = os.open(path, os.O_RDONLY)
    try:
        while os.read(fd, 1 << 20):
            pass
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(fd)


def alone(mount, files, compute):
    for file in files:
        read(os.path.join(mount, file))
        time.sleep(compute)


def loaded(mount, files, workers, batch, compute):
    """As PyTorch's DataLoader: batch b is read by worker b mod workers, two of each ahead."""
    batches = [files[i:i + batch] for i in range(0, len(files), batch)]
    ready = [threading.Event() for _ in batches]
    room = [threading.Semaphore(2) for _ in range(workers)]

    def work(number):
        for b in range(number, len(batches), workers):
            room[number].acquire()
            for file in batches[b]:
                read(os.path.join(mount, file))
            ready[b].set()

    threads = [threading.Thread(target=work, args=(n,)) for n in range(workers)]
    for thread in threads:
        thread.start()
    for b, files_of in enumerate(batches):
        ready[b].wait()
        room[b % workers].release()
        time.sleep(compute * len(files_of))
    for thread in threads:
        thread.join()


def zipf(items, count, lot):
    order = items[:]
    random.Random(1).shuffle(order)
    sums = list(itertools.accumulate(1 / (k + 1) for k in range(len(order))))
    return [order[bisect.bisect_left(sums, lot.random() * sums[-1])] for _ in range(count)]


def run_job(number, sets, mount):
    lot = random.Random(number)
    data = sets[number]
    if number == 2:
        loaded(mount, data.all, 4, 64, 0.0014)
    elif number == 3:
        alone(mount, data.all, 0.02)
    elif number == 4:
        alone(mount, [names[len(names) // 2] for names in data.dirs], 0.02)
    elif number == 6:
        alone(mount, data.all, 0)
    elif number == 9:
        for _ in range(3):
            loaded(mount, lot.sample(data.all, len(data.all)), 8, 64, 0.0025)
    elif number == 14:
        alone(mount, zipf(data.all, 3 * len(data.all) // 4, lot), 0.02)


def run_all(sets, mount):
    """Seconds that each job took from its arrival."""
    lot = random.Random(1)
    took, threads, at = {}, [], 0.0

    def job(number, when):
        time.sleep(when)
        begun = time.monotonic()
        try:
            run_job(number, sets, mount)
        except OSError as error:
            print(f"job {number}: {error}", file=sys.stderr)
            return
        took[number] = time.monotonic() - begun

    for number in lot.sample(list(sets), len(sets)):
        threads.append(threading.Thread(target=job, args=(number, at)))
        at += lot.expovariate(1 / 3)
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return took


def measure(forebay, sets, base, flags, memory, disk):
    """One system: mounts, runs all jobs, unmounts."""
    mount, home = os.path.join(base, "mnt"), os.path.join(base, "cache")
    os.makedirs(mount, exist_ok=True)
    os.makedirs(home, mode=0o700)
    env = dict(os.environ, FOREBAY_RUNTIME_DIR=os.path.join(base, "run"))
    subprocess.run([forebay, "mount", os.path.join(base, "source"), mount, "--cache-dir", home,
                    "--cache-size", str(disk), "--memory", str(memory),
                    "--free-space-ratio", "0.01", "--metrics", "off", "--metadata-ttl", "1h",
                    "--source-threads", "64",
                    "--fault", FAULT, *flags], check=True, env=env)
    try:
        return run_all(sets, mount)
    finally:
        for _ in range(60):  # who looks at all mounts of the machine keeps it for a moment
            if subprocess.run([forebay, "umount", mount], env=env).returncode == 0:
                break
            time.sleep(1)
        for _ in range(200):  # the daemon ends, and lets go of its directory
            try:
                shutil.rmtree(home)
                break
            except OSError:
                time.sleep(0.1)


SYSTEMS = {
    "Forebay": [],
    "one LRU": ["--no-patterns", "--evict", "lru"],
    "no cache": ["--no-cache"],
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--forebay", default="build/gcc/src/cli/forebay")
    parser.add_argument("--dir", help="where data and caches are made; removed at the end")
    parser.add_argument("--scale", type=int, default=20)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    base = tempfile.mkdtemp(prefix="fb.mix.", dir=args.dir)
    results = {}
    try:
        os.makedirs(os.path.join(base, "source"))
        sets = make(os.path.join(base, "source"), args.scale)
        total = sum(data.bytes for data in sets.values())
        time.sleep(3)  # what was just written is not yet believed to be finished
        memory = max(MEMORY_MIN, int(0.35 * total * 2 / 3))
        disk = max(memory // 2, int(0.35 * total) - memory)
        for name, flags in SYSTEMS.items():
            results[name] = measure(args.forebay, sets, base, flags, memory, disk)
            print(f"{name} has run", file=sys.stderr)
    finally:
        shutil.rmtree(base, ignore_errors=True)
    if args.json:
        json.dump({"data_bytes": total, "seconds": results}, sys.stdout, indent=2)
        print()
        return
    print(f"{total / 1e6:.0f} MB of data; memory and disk: {(memory + disk) / 1e6:.0f} MB")
    print(f"{'job':>6}" + "".join(f"{name:>14}" for name in SYSTEMS))
    for number in sorted(sets):
        print(f"{number:>6}" + "".join(f"{results[name].get(number, float('nan')):>14.1f}"
                                      for name in SYSTEMS))
    print(f"{'mean':>6}" + "".join(
        f"{sum(results[name].values()) / max(1, len(results[name])):>14.1f}" for name in SYSTEMS))


if __name__ == "__main__":
    main()
