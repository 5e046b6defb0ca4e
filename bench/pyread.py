#!/usr/bin/python3
"""bench/pyread.py - `open(p, 'rb').read()` of every file of a list, in one process; prints JSON.

    pyread.py DIR --list FILE [--passes N]    microseconds a file of the last pass
"""
import argparse
import json
import os
import random
import time


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("folder")
    parser.add_argument("--list", required=True)
    parser.add_argument("--passes", type=int, default=2)
    options = parser.parse_args()
    with open(options.list, encoding="utf-8") as f:
        paths = [os.path.join(options.folder, line.rstrip("\n")) for line in f]
    random.Random(1).shuffle(paths)
    for _ in range(options.passes):
        start = time.perf_counter()
        for path in paths:
            with open(path, "rb") as f:
                f.read()
        spent = time.perf_counter() - start
    print(json.dumps({"us_per_file": 1e6 * spent / len(paths)}))


main()
