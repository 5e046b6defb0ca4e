"""Slow, obviously correct models of policies: the second witness of `forebay sim`.

Each model is a class with one method, request(key, size, next), which says whether the key was
there. They keep plain Python lists and look through them, and share no idea with the simulator's
arrays and lists. Only hits are counted, and they must be equal one by one, not nearly.
"""
import json
import os
import random
import subprocess
import sys

NEVER = 1 << 62


class Cache:
    """Keys in a list, first in last out of sight; sizes in a dict."""

    def __init__(self, capacity):
        self.capacity = capacity
        self.sizes = {}

    def used(self, keys):
        return sum(self.sizes[k] for k in keys)


class Fifo(Cache):
    def __init__(self, capacity):
        super().__init__(capacity)
        self.queue = []  # oldest first

    def request(self, key, size, _next):
        if key in self.queue:
            return True
        if size <= self.capacity:
            self.sizes[key] = size
            while self.used(self.queue) + size > self.capacity:
                self.queue.pop(0)
            self.queue.append(key)
        return False


class Lru(Fifo):
    def request(self, key, size, following):
        if key in self.queue:
            self.queue.remove(key)
            self.queue.append(key)
            return True
        return super().request(key, size, following)


class Clock(Cache):
    def __init__(self, capacity):
        super().__init__(capacity)
        self.queue = []
        self.marked = set()

    def request(self, key, size, _next):
        if key in self.queue:
            self.marked.add(key)
            return True
        if size <= self.capacity:
            self.sizes[key] = size
            while self.used(self.queue) + size > self.capacity:
                oldest = self.queue.pop(0)
                if oldest in self.marked:
                    self.marked.remove(oldest)
                    self.queue.append(oldest)
            self.queue.append(key)
        return False


class Sieve(Cache):
    def __init__(self, capacity):
        super().__init__(capacity)
        self.queue = []
        self.marked = set()
        self.hand = None  # the key it stands at

    def evict(self):
        at = self.queue.index(self.hand) if self.hand is not None else 0
        while self.queue[at] in self.marked:
            self.marked.remove(self.queue[at])
            at = (at + 1) % len(self.queue)
        self.hand = self.queue[at + 1] if at + 1 < len(self.queue) else None
        self.queue.pop(at)

    def request(self, key, size, _next):
        if key in self.queue:
            self.marked.add(key)
            return True
        if size <= self.capacity:
            self.sizes[key] = size
            while self.used(self.queue) + size > self.capacity:
                self.evict()
            self.queue.append(key)
        return False


class Lfu(Cache):
    def __init__(self, capacity):
        super().__init__(capacity)
        self.cached = {}  # key: (count, time of the last request)
        self.now = 0

    def request(self, key, size, _next):
        self.now += 1
        if key in self.cached:
            self.cached[key] = (self.cached[key][0] + 1, self.now)
            return True
        if size <= self.capacity:
            self.sizes[key] = size
            while self.used(self.cached) + size > self.capacity:
                del self.cached[min(self.cached, key=lambda k: self.cached[k])]
            self.cached[key] = (1, self.now)
        return False


class TwoQ(Cache):
    def __init__(self, capacity):
        super().__init__(capacity)
        self.fifo = []
        self.ghosts = []
        self.main = []  # least recent first
        self.fifo_limit = int(capacity * 0.25)
        self.ghost_limit = int(capacity * 0.5)

    def evict(self):
        if self.used(self.fifo) > self.fifo_limit or not self.main:
            key = self.fifo.pop(0)
            if self.sizes[key] <= self.ghost_limit:
                self.ghosts.append(key)
                while self.used(self.ghosts) > self.ghost_limit:
                    self.ghosts.pop(0)
        else:
            self.main.pop(0)

    def request(self, key, size, _next):
        if key in self.main:
            self.main.remove(key)
            self.main.append(key)
            return True
        if key in self.fifo:
            return True
        if size > self.fifo_limit:
            return False
        known = key in self.ghosts
        if known:
            self.ghosts.remove(key)
        self.sizes[key] = size
        while self.used(self.fifo) + self.used(self.main) + size > self.capacity:
            self.evict()
        while known and self.used(self.main) + size > self.capacity - self.fifo_limit:
            self.main.pop(0)
        (self.main if known else self.fifo).append(key)
        return False


class S3Fifo(Cache):
    def __init__(self, capacity):
        super().__init__(capacity)
        self.small = []
        self.main = []
        self.ghosts = []
        self.counts = {}
        self.small_limit = int(capacity * 0.1)
        self.ghost_limit = int(capacity * 0.9)

    def evict_main(self):
        while self.counts[self.main[0]] > 0:
            key = self.main.pop(0)
            self.counts[key] = min(self.counts[key], 3) - 1
            self.main.append(key)
        self.main.pop(0)

    def evict_small(self):
        while self.small:
            key = self.small.pop(0)
            if self.counts[key] < 2:
                if self.sizes[key] <= self.ghost_limit:
                    self.ghosts.append(key)
                    while self.used(self.ghosts) > self.ghost_limit:
                        self.ghosts.pop(0)
                return
            self.counts[key] = 0
            self.main.append(key)

    def request(self, key, size, _next):
        if key in self.small or key in self.main:
            self.counts[key] += 1
            return True
        if size > self.small_limit:
            return False
        known = key in self.ghosts
        if known:
            self.ghosts.remove(key)
        self.sizes[key] = size
        while self.used(self.small) + self.used(self.main) + size > self.capacity:
            if self.used(self.main) > self.capacity - self.small_limit or not self.small:
                self.evict_main()
            else:
                self.evict_small()
        self.counts[key] = 0
        (self.main if known else self.small).append(key)
        return False


class Slru(Cache):
    def __init__(self, capacity):
        super().__init__(capacity)
        self.lists = [[], [], [], []]  # lowest first; least recent first
        self.limit = capacity // 4

    def evict(self):
        next(l for l in self.lists if l).pop(0)

    def settle(self):
        for i in (3, 2, 1):
            while self.used(self.lists[i]) > self.limit:
                self.lists[i - 1].append(self.lists[i].pop(0))
        while self.used(self.lists[0]) > self.limit:
            self.evict()

    def request(self, key, size, _next):
        for i, l in enumerate(self.lists):
            if key in l:
                l.remove(key)
                self.lists[min(i + 1, 3)].append(key)
                if i < 3:
                    self.settle()
                return True
        if size > self.limit:
            return False
        self.sizes[key] = size
        while sum(map(self.used, self.lists)) + size > self.capacity:
            self.evict()
        room = [l for l in self.lists if self.used(l) + size <= self.limit]
        (room[0] if room else self.lists[0]).append(key)
        return False


class Arc(Cache):
    """The paper's, with sizes: a ghost moves p by its size."""

    def __init__(self, capacity):
        super().__init__(capacity)
        self.t1, self.t2, self.b1, self.b2 = [], [], [], []  # least recent first
        self.p = 0.0

    def replace(self, in_b2):
        t1 = self.used(self.t1)
        if (self.t1 and (t1 > self.p or (t1 == self.p and in_b2))) or not self.t2:
            self.b1.append(self.t1.pop(0))
        else:
            self.b2.append(self.t2.pop(0))

    def evict(self, size):
        l1 = self.used(self.t1) + self.used(self.b1)
        if l1 + size > self.capacity:
            if not self.b1:
                self.t1.pop(0)
                return
            self.b1.pop(0)
        elif l1 + self.used(self.t2) + self.used(self.b2) >= 2 * self.capacity and self.b2:
            self.b2.pop(0)
        self.replace(False)

    def request(self, key, size, _next):
        for l in (self.t1, self.t2):
            if key in l:
                l.remove(key)
                self.t2.append(key)
                return True
        if size > self.capacity:
            return False
        in_b1, in_b2 = key in self.b1, key in self.b2
        b1, b2 = self.used(self.b1), self.used(self.b2)
        if in_b1:
            self.p = min(self.p + max(b2 / b1, 1) * size, self.capacity)
            self.b1.remove(key)
        elif in_b2:
            self.p = max(self.p - max(b1 / b2, 1) * size, 0)
            self.b2.remove(key)
        self.sizes[key] = size
        while self.used(self.t1) + self.used(self.t2) + size > self.capacity:
            if in_b1 or in_b2:
                self.replace(in_b2)
            else:
                self.evict(size)
        (self.t2 if in_b1 or in_b2 else self.t1).append(key)
        return False


class Gdsf(Cache):
    def __init__(self, capacity):
        super().__init__(capacity)
        self.cached = {}  # key: (priority, time)
        self.counts = {}
        self.inflation = 0.0
        self.now = 0

    def request(self, key, size, _next):
        self.now += 1
        hit = key in self.cached
        if not hit and size > self.capacity:
            return False
        if not hit:
            self.sizes[key] = size
            self.counts[key] = 0
        while not hit and self.used(self.cached) + size > self.capacity:
            victim = min(self.cached, key=lambda k: self.cached[k])
            self.inflation = self.cached.pop(victim)[0]
        self.counts[key] += 1
        self.cached[key] = (self.inflation + self.counts[key] / size, self.now)
        return hit


class WTinyLfu(Cache):
    def __init__(self, capacity):
        super().__init__(capacity)
        self.window, self.probation, self.protected = [], [], []  # least recent first
        self.counts = {}
        self.requests = 0
        self.window_limit = int(capacity * 0.01)
        self.main_limit = capacity - self.window_limit
        self.protected_limit = int(self.main_limit * 0.8)

    def count(self, key):
        self.counts[key] = min(self.counts.get(key, 0) + 1, 15)
        self.requests += 1
        cached = len(self.window) + len(self.probation) + len(self.protected)
        if self.requests >= 10 * (cached + 1):
            self.requests = 0
            self.counts = {k: n // 2 for k, n in self.counts.items()}

    def admit(self, key):
        if self.sizes[key] > self.main_limit:
            return
        while self.used(self.probation + self.protected) + self.sizes[key] > self.main_limit:
            source = self.probation or self.protected
            if self.counts.get(key, 0) <= self.counts.get(source[0], 0):
                return
            source.pop(0)
        self.probation.append(key)

    def request(self, key, size, _next):
        self.count(key)
        for l in (self.window, self.protected):
            if key in l:
                l.remove(key)
                l.append(key)
                return True
        if key in self.probation:
            self.probation.remove(key)
            self.protected.append(key)
            while self.used(self.protected) > self.protected_limit:
                self.probation.append(self.protected.pop(0))
            return True
        if size <= self.capacity:
            self.sizes[key] = size
            self.window.append(key)
            while self.used(self.window) > self.window_limit:
                self.admit(self.window.pop(0))
        return False


class Lirs(Cache):
    def __init__(self, capacity):
        super().__init__(capacity)
        self.stack = []  # top last
        self.lir = set()
        self.queue = []  # cached HIR, first to leave first
        self.gone = []  # in the stack, not cached; longest gone first
        self.hir_limit = max(int(capacity * 0.01), 1)
        self.lir_limit = capacity - self.hir_limit

    def prune(self):
        while self.stack and self.stack[0] not in self.lir:
            key = self.stack.pop(0)
            if key in self.gone:
                self.gone.remove(key)

    def enter_queue(self, key):
        while self.used(self.queue) + self.sizes[key] > self.hir_limit:
            victim = self.queue.pop(0)
            if victim in self.stack:
                self.gone.append(victim)
        self.queue.append(key)

    def to_top(self, key):
        if key in self.stack:
            self.stack.remove(key)
        self.stack.append(key)

    def become_lir(self, key):
        self.lir.add(key)
        while self.used(self.lir) > self.lir_limit and self.stack[0] != key:
            bottom = self.stack.pop(0)
            self.lir.remove(bottom)
            if self.sizes[bottom] <= self.hir_limit:
                self.enter_queue(bottom)
            self.prune()
        self.prune()

    def hit(self, key):
        known = key in self.stack
        self.to_top(key)
        if key in self.lir:
            self.prune()
            return
        self.queue.remove(key)
        if known:
            self.become_lir(key)
        else:
            self.queue.append(key)

    def miss(self, key, size):
        if key in self.gone:
            self.gone.remove(key)
            self.to_top(key)
            self.become_lir(key)
            return
        if size > self.hir_limit or size > self.lir_limit:
            return
        self.sizes[key] = size
        self.to_top(key)
        if self.used(self.lir) + size <= self.lir_limit:
            self.lir.add(key)
        else:
            self.enter_queue(key)

    def request(self, key, size, _next):
        found = key in self.lir or key in self.queue
        if found:
            self.hit(key)
        else:
            self.miss(key, size)
        while self.used(self.stack) > 2 * self.capacity and self.gone:
            self.stack.remove(self.gone.pop(0))
        return found


class Uniform(Cache):
    def __init__(self, capacity):
        super().__init__(capacity)
        self.kept = set()

    def request(self, key, size, _next):
        if key in self.kept:
            return True
        self.sizes[key] = size
        if self.used(self.kept) + size <= self.capacity:
            self.kept.add(key)
        return False


class Belady(Cache):
    """For sizes of 1, where it does not matter which of those never asked for again leaves."""

    def __init__(self, capacity):
        super().__init__(capacity)
        self.following = {}

    def request(self, key, size, following):
        hit = key in self.following
        self.sizes[key] = size
        while not hit and self.used(self.following) + size > self.capacity:
            del self.following[max(self.following, key=lambda k: self.following[k])]
        self.following[key] = following
        return hit


MODELS = {
    "fifo": Fifo, "lru": Lru, "clock": Clock, "sieve": Sieve, "lfu": Lfu, "2q": TwoQ,
    "s3fifo": S3Fifo, "slru": Slru, "arc": Arc, "gdsf": Gdsf, "uniform": Uniform,
    "wtinylfu": WTinyLfu, "lirs": Lirs,
}


def make_trace(kind, lot, count):
    """Keys and sizes: popular ones, a loop, scans between them, or drifting popularity."""
    keys = []
    for i in range(count):
        if kind == "zipf":
            keys.append(int(150 * lot.random() ** 3))
        elif kind == "loop":
            keys.append(i % 90 if lot.random() < 0.8 else lot.randrange(40))
        elif kind == "scan":
            keys.append(1000 + i if i % 100 < 30 else int(80 * lot.random() ** 2))
        else:
            keys.append(i // 40 + int(60 * lot.random() ** 2))
    sizes = {}
    for key in keys:
        sizes.setdefault(key, lot.choice((1, 3, 10, 40, 100)))
    return keys, sizes


def next_requests(keys):
    following = [NEVER] * len(keys)
    last = {}
    for i, key in enumerate(keys):
        if key in last:
            following[last[key]] = i
        last[key] = i
    return following


def model_misses(model, capacity, keys, sizes):
    cache = model(capacity)
    following = next_requests(keys)
    return sum(not cache.request(k, sizes[k], n) for k, n in zip(keys, following))


def simulate(path, policies, capacities, ignore_size):
    command = [os.environ["FOREBAY"], "sim", path, "--json", "--policy", ",".join(policies)]
    command += ["--size", ",".join(map(str, capacities)), "--jobs", "2"]
    command += ["--ignore-size"] if ignore_size else []
    out = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
    return {(r["policy"], r["size_bytes"]): r["misses"] for r in json.loads(out)["results"]}


def check(kind, lot, path):
    keys, sizes = make_trace(kind, lot, 4000)
    with open(path, "w", encoding="ascii") as f:
        f.write("time,id,size\n")
        for i, key in enumerate(keys):
            f.write(f"{i // 10},{key},{sizes[key]}\n")
    wrong = 0
    for ignore_size, capacities in ((True, (1, 2, 10, 50)), (False, (100, 333, 2000))):
        models = dict(MODELS)
        if ignore_size:
            models["belady"] = Belady
        used = dict.fromkeys(sizes, 1) if ignore_size else sizes
        ours = simulate(path, models, capacities, ignore_size)
        for name, model in models.items():
            for capacity in capacities:
                expected = model_misses(model, capacity, keys, used)
                if ours[name, capacity] != expected:
                    wrong += 1
                    print(f"{kind}: {name} at {capacity}"
                          f"{' objects' if ignore_size else ' bytes'}: {ours[name, capacity]} "
                          f"misses, the model has {expected}")
    return wrong


def main():
    lot = random.Random(20)
    wrong = sum(check(kind, lot, "trace.csv") for kind in ("zipf", "loop", "scan", "drift"))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
