#!/usr/bin/env python3
"""Ways to lay an epoch out on a disk, as fio does their reads and writes (docs/adr/0014).

    bench/layouts.py DIR [--size 1G] [--item 100k] [--segment 2m] [--rounds 3]

An epoch reads a data set once and, where it is rewritten, writes it once, both at the same time:
its speed is the data set over the time until both have ended. Rounds are interleaved.
"""
import argparse
import json
import os
import statistics
import subprocess

ARGS = argparse.ArgumentParser()
ARGS.add_argument("dir")
ARGS.add_argument("--size", default="1G")
ARGS.add_argument("--item", default="100k")
ARGS.add_argument("--segment", default="2m")
ARGS.add_argument("--rounds", type=int, default=3)


def job(name, size, rw, block, depth):
    return [f"--name={name}", f"--filename={name}.layouts", f"--size={size}", f"--rw={rw}",
            f"--bs={block}", f"--iodepth={depth}"]


def layouts(args):
    whole = job("read", args.size, "read", "1m", 8)
    pieces = job("read", args.size, "randread", args.item, 32)
    return {
        "where it lies: items at random": [pieces],
        "in order, only read": [whole],
        "buckets: whole segments, and segments written": [
            whole, job("write", args.size, "write", args.segment, 4)],
        "two halves: in order, and items written at random": [
            whole, job("write", args.size, "randwrite", args.item, 32)],
        "gathered: items at random, and segments written": [
            pieces, job("write", args.size, "write", args.segment, 4)],
    }


def run(folder, jobs):
    words = ["fio", "--ioengine=io_uring", "--direct=1", "--output-format=json", "--end_fsync=1"]
    for one in jobs:
        words += one
    seen = json.loads(subprocess.run(words, cwd=folder, check=True, capture_output=True,
                                     text=True).stdout)
    slowest = 0
    size = 0
    for one in seen["jobs"]:
        way = one["read"] if one["read"]["io_bytes"] else one["write"]
        slowest = max(slowest, one["job_runtime"])
        size = way["io_bytes"]
    return size / slowest * 1e3


def main():
    args = ARGS.parse_args()
    ways = layouts(args)
    for name in ("read", "write"):
        run(args.dir, [job(name, args.size, "write", "1m", 8)])
    seen = {name: [] for name in ways}
    for _ in range(args.rounds):
        for name, jobs in ways.items():
            seen[name].append(run(args.dir, jobs))
    for name, speeds in seen.items():
        print(f"{name:52} {statistics.median(speeds) / 1e9:6.2f} GB/s "
              f"({min(speeds) / 1e9:.2f} to {max(speeds) / 1e9:.2f})")
    for name in ("read", "write"):
        os.remove(os.path.join(args.dir, name + ".layouts"))


main()
