#!/usr/bin/python3
"""bench/training.py - epochs of a shuffled data set through a torch DataLoader; prints JSON, one
time an epoch.

    training.py DIR --list FILE --workers N [--epochs N] [--batch N] [--seed N] [--plan]
                [--fast DIR2] [--no-io] [--decode] [--step MS] [--drop] [--count]

--plan hands the loader to Forebay first. --fast: files that are in DIR2 as well are read there (a
fixed part of the data set in memory: with one rank every sample is read equally often, so NoPFS's
placement by frequency is any part). --no-io reads nothing: what the loader itself takes; with
--decode, which decodes files as JPEG, it decodes the first one each time. --step: what a GPU takes
a batch; `stalls` are the seconds of each epoch beyond that. --drop: the kernel is to keep nothing.
--count: `source` are the bytes that the daemon has read of its source by the end of each epoch.
"""
import argparse
import io
import json
import os
import subprocess
import time

import torch
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Files(Dataset):
    """One number made of each file's bytes."""

    def __init__(self, options):
        with open(options.list, encoding="utf-8") as f:
            names = sorted(line.rstrip("\n") for line in f)
        self.paths = [os.path.join(options.folder, name) for name in names]
        self.places = list(self.paths)
        self.no_io = options.no_io
        self.drop = options.drop
        self.decode = None
        if options.decode:
            from PIL import Image  # pylint: disable=import-outside-toplevel

            self.decode = Image.open
            with open(self.paths[0], "rb") as f:
                self.first = f.read()
        if options.fast:
            for i, name in enumerate(names):
                fast = os.path.join(options.fast, name)
                if os.path.exists(fast):
                    self.places[i] = fast

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, i):
        if self.no_io and not self.decode:
            return i
        if self.no_io:
            data = self.first
        else:
            with open(self.places[i], "rb") as f:
                data = f.read()
                if self.drop:
                    os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        if self.decode:
            return sum(self.decode(io.BytesIO(data)).convert("RGB").getpixel((0, 0)))
        return len(data) + data[-1]


def source_bytes():
    out = subprocess.run([os.environ["FOREBAY"], "status", "--json"], check=True,
                         stdout=subprocess.PIPE).stdout
    return json.loads(out)["daemons"][0]["counters"]["source_read_bytes"]


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("folder")
    parser.add_argument("--list", required=True)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--plan", action="store_true")
    parser.add_argument("--fast")
    parser.add_argument("--no-io", action="store_true")
    parser.add_argument("--decode", action="store_true")
    parser.add_argument("--step", type=float, default=0)
    parser.add_argument("--drop", action="store_true")
    parser.add_argument("--count", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    files = Files(options)
    sampler = DistributedSampler(files, num_replicas=1, rank=0, seed=options.seed)
    loader = DataLoader(files, batch_size=options.batch, sampler=sampler,
                        num_workers=options.workers)
    if options.plan:
        import forebay.torch  # pylint: disable=import-outside-toplevel

        forebay.torch.attach(loader)
    seconds, stalls, source = [], [], []
    for epoch in range(options.epochs):
        sampler.set_epoch(epoch)
        start = time.perf_counter()
        count = 0
        for batch in loader:
            count += len(batch)
            time.sleep(options.step / 1e3)
        seconds.append(time.perf_counter() - start)
        stalls.append(seconds[-1] - len(loader) * options.step / 1e3)
        assert count == len(files)
        if options.count:
            source.append(source_bytes())
    print(json.dumps({"files": len(files), "seconds": seconds, "stalls": stalls,
                      "source": source}))


main()
