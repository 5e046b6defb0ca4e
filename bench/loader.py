#!/usr/bin/python3
"""bench/loader.py - epochs of a torch DataLoader over a directory of files; prints JSON, one time an
epoch.

    loader.py DIR --epochs N --workers N --list FILE [--batch N] [--keep all|little] [--seed N]

Each sample is the file's bytes as a tensor (all), or one number made of them (little): the loader
copies what is kept several times and hands it from process to process, which takes longer than
reading it.
"""
import argparse
import json
import os
import time

import numpy
import torch


class Files(torch.utils.data.Dataset):
    """Every file below a directory, or those that a list names."""

    def __init__(self, folder, listing, keep):
        self.keep = keep
        with open(listing, encoding="utf-8") as f:
            self.paths = [os.path.join(folder, line.rstrip("\n")) for line in f]

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, i):
        with open(self.paths[i], "rb") as f:
            data = f.read()
        if self.keep == "little":
            return len(data) + data[-1]
        return torch.from_numpy(numpy.frombuffer(data, dtype=numpy.uint8).copy())


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("folder")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--list", required=True)
    parser.add_argument("--keep", choices=("all", "little"), default="all")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    torch.manual_seed(options.seed)
    torch.set_num_threads(1)
    files = Files(options.folder, options.list, options.keep)
    loader = torch.utils.data.DataLoader(files, batch_size=options.batch, shuffle=True,
                                         num_workers=options.workers)
    seconds = []
    for _ in range(options.epochs):
        start = time.perf_counter()
        count = sum(len(batch) for batch in loader)
        seconds.append(time.perf_counter() - start)
        assert count == len(files)
    print(json.dumps({"files": len(files), "seconds": seconds}))


main()
