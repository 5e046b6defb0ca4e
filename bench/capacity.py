#!/usr/bin/python3
"""bench/capacity.py - a simulation: what a cache smaller than the data set saves, by what it keeps.

    capacity.py [--files N] [--svg FILE]

Epochs of a shuffled data set behind a source of 150 ms and 1 Gbit/s, files of 100 KiB, batches of
128, four workers, a GPU that takes 50 ms a batch; caches of 10 to 100% of the set; the mean of
epochs 2 and 3. What is cached costs nothing. Layouts:

    lru        the least recently used file goes; misses are fetched by the worker that wants them
    uniform    what came first stays; misses as with lru
    halves     the paper's: one half of the cache holds the beginning of this epoch, the other that
               of the next; the rest is fetched in order, ahead
    first      the same with one pool: all of the cache holds the beginning of the next epoch, once
               this one is over
    plan       Forebay's: the same files stay, the rest is fetched in order, ahead

Without a plan a worker waits for each of its files; with one, 256 MiB are fetched ahead, 64 files
at a time. Prints a table: bytes of the source an epoch, as a share of the set, and seconds that the
GPU waits.
"""
import argparse
import collections
import random

LATENCY_S = 0.150
BANDWIDTH = 125e6
FILE_BYTES = 100 << 10
BATCH = 128
WORKERS = 4
STEP_S = 0.050
AHEAD_FILES = (256 << 20) // FILE_BYTES
REQUESTS = 64
EPOCHS = 3
TRANSFER_S = FILE_BYTES / BANDWIDTH


class Lru:
    def __init__(self, capacity):
        self.capacity = capacity
        self.files = collections.OrderedDict()

    def hits(self, order, _after):
        hits = []
        for file in order:
            hits.append(file in self.files)
            self.files[file] = True
            self.files.move_to_end(file)
            if len(self.files) > self.capacity:
                self.files.popitem(last=False)
        return hits


class Uniform:
    def __init__(self, capacity):
        self.capacity = capacity
        self.files = set()

    def hits(self, order, _after):
        hits = [file in self.files for file in order]
        for file in order:
            if len(self.files) < self.capacity:
                self.files.add(file)
        return hits


class First:
    """A file of the next epoch's beginning is kept when it is read in this one."""

    def __init__(self, capacity):
        self.capacity = capacity
        self.files = set()

    def hits(self, order, after):
        hits = [file in self.files for file in order]
        self.files = set(after[:self.capacity])
        return hits


class Halves(First):
    def __init__(self, capacity):
        super().__init__(capacity // 2)


def wait_on_demand(hits):
    """Seconds the GPU waits, when each worker fetches what it misses, one after the other: too few
    at a time to fill the line."""
    free = [0.0] * WORKERS  # when a worker can begin its next batch
    gpu = waited = 0.0
    starts = collections.deque()
    for no in range(0, len(hits), BATCH):
        worker = no // BATCH % WORKERS
        # A loader has two batches a worker under way.
        now = max(free[worker], starts.popleft() if len(starts) == 2 * WORKERS else 0.0)
        now += hits[no:no + BATCH].count(False) * (LATENCY_S + TRANSFER_S)
        free[worker] = now
        waited += max(0.0, now - gpu)
        gpu = max(gpu, now)
        starts.append(gpu)
        gpu += STEP_S
    return waited


def wait_ahead(hits):
    """The same, when the source is asked in order, ahead of the readers."""
    pipe = 0.0
    gpu = waited = 0.0
    began = []  # when the GPU took each batch
    flying = collections.deque()
    for no in range(0, len(hits), BATCH):
        ready = 0.0
        for k in range(no, min(no + BATCH, len(hits))):
            if hits[k]:
                continue
            # Not before there is room: the batch so far back was read.
            back = (k - AHEAD_FILES) // BATCH
            now = began[back] if back >= 0 else 0.0
            if len(flying) == REQUESTS:
                now = max(now, flying.popleft())
            pipe = max(pipe, now) + TRANSFER_S
            done = max(now + LATENCY_S + TRANSFER_S, pipe + LATENCY_S)
            flying.append(done)
            ready = max(ready, done)
        waited += max(0.0, ready - gpu)
        gpu = max(gpu, ready)
        began.append(gpu)
        gpu += STEP_S
    return waited


LAYOUTS = {"lru": (Lru, wait_on_demand), "uniform": (Uniform, wait_on_demand),
           "halves": (Halves, wait_ahead), "first": (First, wait_ahead),
           "plan": (Uniform, wait_ahead)}


def simulate(files, percent):
    """For each layout: share of the set read from the source, and seconds waited, an epoch."""
    rand = random.Random(percent)
    orders = [rand.sample(range(files), files) for _ in range(EPOCHS + 1)]
    result = {}
    for name, (layout, wait) in LAYOUTS.items():
        cache = layout(files * percent // 100)
        missed = waited = 0
        for epoch in range(EPOCHS):
            hits = cache.hits(orders[epoch], orders[epoch + 1])
            if epoch > 0:
                missed += hits.count(False)
                waited += wait(hits)
        result[name] = (missed / files / (EPOCHS - 1), waited / (EPOCHS - 1))
    return result


COLOURS = {"lru": "#999999", "uniform": "#1f77b4", "halves": "#ff7f0e", "first": "#9467bd",
           "plan": "#2ca02c"}


def panel(table, which, left, title, top):
    """Lines of one figure: capacity to the right, the value upwards."""
    def point(percent, value):
        return f"{left + 4 * percent:.1f},{260 - 220 * value / top:.1f}"

    out = [f'<text x="{left + 200}" y="20" text-anchor="middle">{title}</text>',
           f'<path d="M{left},40 V260 H{left + 400}" fill="none" stroke="black"/>',
           f'<text x="{left - 4}" y="44" text-anchor="end">{top:.3g}</text>',
           f'<text x="{left - 4}" y="260" text-anchor="end">0</text>',
           f'<text x="{left + 200}" y="290" text-anchor="middle">cache, % of the data set</text>']
    for at, name in enumerate(LAYOUTS):
        line = " ".join(point(percent, row[name][which]) for percent, row in table.items())
        out.append(f'<polyline points="{line}" fill="none" stroke="{COLOURS[name]}" '
                   'stroke-width="2"/>')
        out.append(f'<text x="{left + 300}" y="{60 + 18 * at}" fill="{COLOURS[name]}">'
                   f'{name}</text>')
    return out


def write_svg(table, path):
    most = max(row[name][1] for row in table.values() for name in LAYOUTS)
    lines = ['<svg xmlns="http://www.w3.org/2000/svg" width="980" height="300" '
             'font-family="sans-serif" font-size="13">',
             '<rect width="980" height="300" fill="white"/>',
             *panel(table, 0, 60, "read from the source an epoch, share of the set", 1.0),
             *panel(table, 1, 560, "seconds the GPU waits an epoch", most), "</svg>"]
    with open(path, "w", encoding="ascii") as f:
        f.write("\n".join(lines) + "\n")


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--files", type=int, default=20000)
    parser.add_argument("--svg")
    options = parser.parse_args()
    table = {}
    print("cache " + " ".join(f"{name:>16}" for name in LAYOUTS))
    for percent in range(10, 101, 10):
        table[percent] = simulate(options.files, percent)
        cells = (f"{100 * share:7.1f}% {wait:6.1f}s" for share, wait in table[percent].values())
        print(f"{percent:4}% " + " ".join(f"{cell:>16}" for cell in cells), flush=True)
    if options.svg:
        write_svg(table, options.svg)


main()
