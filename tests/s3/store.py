"""tests/s3/store.py - what the fault-injecting server has in its buckets.

Objects lie in memory. Two things are made up instead, so that a test of large things costs nothing:
an object of many GiB (pattern(): every byte is known from its offset), and a bucket of millions of
keys that differ in a number.
"""
import bisect
import datetime
import hashlib
import heapq
import itertools
import random
import threading
import time

BLOCK = 1 << 20
STAMP = 16  # bytes at the head of each block that say which it is


def blocks_of(seed):
    return random.Random(seed).randbytes(BLOCK)


class Pattern:
    """Bytes of an object that is made up: blocks of noise, each with its number in front."""

    def __init__(self, seed):
        self.block = blocks_of(seed)

    def read(self, start, end):
        parts = []
        while start < end:
            number, skip = divmod(start, BLOCK)
            stop = min(BLOCK, skip + end - start)
            if skip >= STAMP:
                parts.append(memoryview(self.block)[skip:stop])
            else:
                whole = number.to_bytes(STAMP, "big") + self.block[STAMP:stop]
                parts.append(whole[skip:stop])
            start += stop - skip
        return b"".join(parts)


class Object:
    """One version of one object."""

    def __init__(self, body=b"", etag=None, headers=None, size=None, pattern=None):
        self.body = body
        self.pattern = pattern
        self.size = len(body) if size is None else size
        self.etag = etag or hashlib.md5(body).hexdigest()
        self.headers = headers or {}
        self.time = time.time()
        when = datetime.datetime.fromtimestamp(self.time, datetime.timezone.utc)
        self.modified = when.strftime("%Y-%m-%dT%H:%M:%S.") + f"{when.microsecond // 1000:03}Z"

    def read(self, start, end):
        return self.pattern.read(start, end) if self.pattern else self.body[start:end]


class Row:
    """Keys `prefix` + number for all numbers below count, each an object of `size` bytes."""

    def __init__(self, prefix, count, size):
        self.prefix = prefix
        self.count = count
        self.digits = len(str(count))
        self.object = Object(size=size, pattern=Pattern(1), etag="0" * 32 + "-1")

    def key(self, number):
        return self.prefix + str(number).zfill(self.digits).encode()

    def number(self, key):
        rest = key[len(self.prefix):]
        if key.startswith(self.prefix) and len(rest) == self.digits and rest.isdigit():
            return int(rest) if int(rest) < self.count else None
        return None

    def keys_from(self, start):
        low, high = 0, self.count
        while low < high:
            middle = (low + high) // 2
            if self.key(middle) < start:
                low = middle + 1
            else:
                high = middle
        return map(self.key, range(low, self.count))


class Bucket:
    """Objects by key, and uploads in the making. The lock is for all of it."""

    def __init__(self):
        self.lock = threading.RLock()
        self.objects = {}
        self.rows = []
        self.uploads = {}  # id -> [key, {number: Object}]
        self.begun = {}  # id -> when, as a listing says it
        self.sorted = []
        self.stale = False

    def get(self, key):
        with self.lock:
            found = self.objects.get(key)
            if found is None:
                found = next((r.object for r in self.rows if r.number(key) is not None), None)
            return found

    def put(self, key, what):
        with self.lock:
            self.stale = self.stale or key not in self.objects
            self.objects[key] = what

    def delete(self, key):
        with self.lock:
            self.stale = self.stale or key in self.objects
            self.objects.pop(key, None)

    def keys_from(self, start):
        if self.stale:
            self.sorted = sorted(self.objects)
            self.stale = False
        mine = itertools.islice(self.sorted, bisect.bisect_left(self.sorted, start), None)
        if not self.rows:
            return mine
        return heapq.merge(mine, *(row.keys_from(start) for row in self.rows))

    def list(self, prefix, delimiter, after, most):
        """Pairs (key, Object) and (common prefix, None), at most so many; and whether more follow.

        `after` may be a key or a common prefix, which is then passed as a whole.
        """
        with self.lock:
            found = []
            start = max(prefix, after + b"\0") if after else prefix
            if after and delimiter and after.endswith(delimiter):
                start = max(start, after + b"\xff")
            keys = self.keys_from(start)
            while True:
                key = next(keys, None)
                if key is None or not key.startswith(prefix):
                    return found, False
                if len(found) == most:
                    return found, True
                cut = key.find(delimiter, len(prefix)) if delimiter else -1
                if cut < 0:
                    found.append((key, self.get(key)))
                    continue
                common = key[:cut + len(delimiter)]
                found.append((common, None))
                keys = self.keys_from(common + b"\xff")
