#!/usr/bin/python3
"""bench/gpu.py - how long a GPU waits for its data: a ResNet-50 trained on JPEGs behind a source as
slow as a cloud, read directly, through a Forebay mount and under `forebay run`; and from a local
disk in the page cache, which is what the loader itself can do. Prints a table in Markdown.

    FOREBAY=path/to/forebay bench/gpu.py [--images N] [--latency 10ms] [--bandwidth 1G] [--memory 8G]

It needs a GPU with torch and torchvision, and root for the mounts; takes some minutes.
"""
import argparse
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time

from mounts import Failed, Mounts, die_cleanly, forebay_binary
from shares import Share

CLASSES = 10
SETTLE_S = 2.5
BESIDE = os.path.dirname(os.path.abspath(__file__))


def make_image(task):
    """A JPEG like a photo of ImageNet: 500 x 375, some 110 KB."""
    import torch  # pylint: disable=import-outside-toplevel
    import torchvision  # pylint: disable=import-outside-toplevel

    folder, number = task
    torch.set_num_threads(1)
    rand = torch.Generator().manual_seed(number)
    shapes = torch.rand((1, 3, 12, 16), generator=rand)
    image = torch.nn.functional.interpolate(shapes, (375, 500), mode="bicubic")[0]
    image += 0.1 * torch.randn((3, 375, 500), generator=rand)
    jpeg = torchvision.io.encode_jpeg((image.clamp(0, 1) * 255).to(torch.uint8), quality=88)
    data = jpeg.numpy().tobytes()
    path = os.path.join(folder, f"class{number % CLASSES}", f"{number:06}.jpg")
    with open(path, "wb") as f:
        f.write(data)
    return len(data)


def make_images(folder, count):
    for number in range(CLASSES):
        os.makedirs(os.path.join(folder, f"class{number}"))
    with multiprocessing.get_context("spawn").Pool() as pool:
        return sum(pool.imap_unordered(make_image, ((folder, i) for i in range(count)), 64))


def train(folder, options, *more, share=None):
    """The epochs' rows, as resnet.py prints them."""
    command = [sys.executable, os.path.join(BESIDE, "resnet.py"), folder,
               "--workers", str(options.workers), *more]
    env = {**os.environ, **(share.env if share else {})}
    done = subprocess.run(share.command(*command) if share else command, env=env,
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Failed("resnet.py: " + (done.stderr.strip().split("\n") or ["?"])[-1])
    return [json.loads(line) for line in done.stdout.splitlines()]


def show(name, rows, sources=None):
    for i, row in enumerate(rows):
        source = f"{sources[i] / 1e9:.2f} GB" if sources else ""
        print(f"| {name} | {row['epoch']} | {row['images_per_s']:,.0f} | {row['gpu_idle']:.0%} "
              f"| {source} |", flush=True)


def bench(options, folder, mounts):
    data = os.path.join(folder, "data")
    total = make_images(data, options.images)
    made = time.monotonic()
    fault = f"latency={options.latency},bandwidth={options.bandwidth}"
    print(f"{options.images:,} JPEGs, {total / 1e9:.2f} GB; source: {options.latency}, "
          f"{options.bandwidth}B/s; {options.workers} workers; --memory {options.memory}\n\n"
          "| read from | epoch | images/s | GPU idle | from the source |\n"
          "|---|---|---|---|---|")

    def slow():
        return mounts.add("slow", data, "--no-cache", "--fault", fault, "--memory", "1G",
                          "--cache-size", "0")

    show("nothing (one batch again and again)",
         train(data, options, "--no-data", "--epochs", "2")[1:])
    train(data, options, "--epochs", "1")
    show("a local disk, in the page cache", train(data, options, "--epochs", "2"))
    time.sleep(max(0, made + SETTLE_S - time.monotonic()))
    source = slow()
    show("the slow source", train(source.point, options, "--epochs", "2"))
    mounts.stop(source)
    kept = ["--memory", options.memory, "--cache-size", "20G"]
    source = slow()
    fast = mounts.add("fast", source.point, "--consistency", "static", *kept)
    rows = train(fast.point, options)
    show("a Forebay mount of it", rows)
    print(f"| | | | | {fast.source_bytes() / 1e9:.2f} GB in all |")
    mounts.stop(fast)
    mounts.stop(source)
    source = slow()
    share = mounts.hold(Share(source.point, os.path.join(folder, "share"), *kept))
    show("the slow source, under `forebay run`", train(source.point, options, share=share))
    print(f"| | | | | {share.source_bytes() / 1e9:.2f} GB in all |")


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--images", type=int, default=20000)
    parser.add_argument("--workers", type=int, default=16)
    parser.add_argument("--latency", default="10ms")
    parser.add_argument("--bandwidth", default="1G")
    parser.add_argument("--memory", default="8G")
    options = parser.parse_args()
    die_cleanly()
    try:
        forebay_binary()
        folder = tempfile.mkdtemp(prefix="forebay-gpu-", dir=os.environ.get("TMPDIR", "/var/tmp"))
        with Mounts(folder) as mounts:
            bench(options, folder, mounts)
    except Failed as failed:
        sys.exit(f"bench/gpu.py: {failed}")
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
