"""learned_daemon.py make KEYS [long] | scrape | compare FOREBAY - the Python of learned_daemon."""
import array
import json
import os
import random
import struct
import subprocess
import sys
import urllib.request

OBJECTS = 6000
REQUESTS = 24000
LONG = 300000
TRACE = "arc_oltp/OLTP.lis.zst"
APART = 3  # exit status


def made():
    """Popular objects, the first much more often, which slowly change places, and scans."""
    lot = random.Random(11)
    fresh = OBJECTS // 2
    for i in range(REQUESTS):
        if i % 4 == 0:
            yield OBJECTS // 2 + fresh % (OBJECTS // 2)
            fresh += 1
        else:
            yield (int(OBJECTS // 2 * lot.random() ** 4) + i // 200) % (OBJECTS // 2)


def real():
    """The first requests of a real trace, where it is."""
    path = os.path.join(os.environ["FOREBAY_TRACES"], TRACE)
    out = subprocess.run(["zstd", "-dc", path], check=True, stdout=subprocess.PIPE).stdout
    keys, numbers = [], {}
    for line in out.decode().splitlines():
        start, count = map(int, line.split()[:2])
        for block in range(start, start + count):
            keys.append(numbers.setdefault(block, len(numbers)))
            if len(keys) == LONG:
                return keys
    return keys


def make(path, how):
    keys = array.array("I", real() if how == ["long"] else made())
    if sys.byteorder == "big":
        keys.byteswap()
    with open(path, "wb") as f:
        keys.tofile(f)
    print(max(keys) + 1)


def scrape():
    """What it costs is in /metrics."""
    with open("status", encoding="utf-8") as f:
        where = json.load(f)["daemons"][0]["metrics_address"]
    with urllib.request.urlopen(f"http://{where}/metrics", timeout=60) as reply:
        lines = reply.read().decode().splitlines()
    values = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    for name in ("trainings", "training_microseconds", "rankings", "ranking_microseconds"):
        if float(values[f"forebay_{name}_total"]) <= 0:
            sys.exit(f"/metrics has no {name}")


def simulate(forebay, policy, size):
    command = [forebay, "sim", "log", "--format", "forebay", "--ignore-size", "--json"]
    command += ["--size", str(size), "--policy", policy]
    out = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
    return {r["policy"].split(":")[0]: 1 - r["miss_ratio"] for r in json.loads(out)["results"]}


def compare(forebay):
    with open("log", "rb") as f:
        records = f.read()[16:]
    flags = [flags for _, _, _, flags in struct.iter_unpack("<QQII", records)]
    with open("status", encoding="utf-8") as f:
        daemon = json.load(f)["daemons"][0]
    tier, counters = daemon["tiers"][0], daemon["counters"]
    hits = sum(f & 1 for f in flags) / len(flags)
    segments = tier["slots"] if "slots" in tier else tier["budget_bytes"] // (64 << 10)
    simulated = simulate(forebay, f"learned:segments={segments},lru", tier["items"])
    wanted = os.path.getsize("keys") // 4
    print(f"{len(flags)} requests, {tier['items']} items in {segments} segments: "
          f"hit ratio {hits:.4f} here, {simulated['learned']:.4f} simulated, "
          f"{simulated['lru']:.4f} with LRU; "
          f"{ {k: counters[k] for k in counters if 'train' in k or 'rank' in k or k == 'kept'} }")
    if len(flags) != wanted:
        sys.exit(f"{wanted} requests were made, {len(flags)} are in the log")
    if counters["trainings"] < 2:
        sys.exit("it has not learned")
    if abs(hits - simulated["learned"]) > 0.01 or hits < simulated["lru"] + 0.01:
        print("the daemon and the simulator do not agree, or it is not better than LRU")
        sys.exit(APART)


if sys.argv[1] == "make":
    make(sys.argv[2], sys.argv[3:])
elif sys.argv[1] == "scrape":
    scrape()
else:
    compare(sys.argv[2])
