#!/usr/bin/python3
"""bench/resnet.py - trains a ResNet-50 on a GPU with the JPEGs of a folder; prints JSON, an object
an epoch.

    resnet.py DIR [--epochs N] [--batch N] [--workers N] [--seed N] [--no-data]

What a user would write: ImageFolder, a seeded DataLoader, bf16. It knows nothing of Forebay.
`images_per_s` is the whole epoch's; `gpu_idle` the share of its time that the GPU had nothing to
do, told by events of the GPU itself around each step. --no-data trains on one batch again and
again: what the GPU can do.
"""
import argparse
import json
import time

import torch
import torchvision
from torch.utils.data import DataLoader
from torchvision.transforms import v2

WARM_STEPS = 10


def read_jpeg(path):
    """Decoded by a worker, from the bytes of the file as open() and read() give them."""
    with open(path, "rb") as f:
        data = bytearray(f.read())
    return torchvision.io.decode_jpeg(torch.frombuffer(data, dtype=torch.uint8))


class Trainer:
    """A model, and steps that are timed on the GPU."""

    def __init__(self, seed):
        torch.manual_seed(seed)
        self.model = torchvision.models.resnet50().cuda().to(memory_format=torch.channels_last)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9)
        self.loss = torch.nn.CrossEntropyLoss()
        self.events = []

    def step(self, images, labels):
        images = images.cuda(non_blocking=True).to(memory_format=torch.channels_last)
        labels = labels.cuda(non_blocking=True)
        begun, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begun.record()
        with torch.autocast("cuda", torch.bfloat16):
            loss = self.loss(self.model(images.float().div_(255)), labels)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        ended.record()
        self.events.append((begun, ended))

    def busy_s(self):
        """Of the steps since the last call."""
        torch.cuda.synchronize()
        busy = sum(begun.elapsed_time(ended) for begun, ended in self.events) / 1000
        self.events = []
        return busy


def batches(options):
    """Epoch after epoch of (images, labels)."""
    if options.no_data:
        images = torch.randint(0, 256, (options.batch, 3, 224, 224), dtype=torch.uint8)
        labels = torch.randint(0, 10, (options.batch,))
        images, labels = images.pin_memory(), labels.pin_memory()
        for _ in range(options.epochs):
            yield ((images, labels) for _ in range(40))
        return
    data = torchvision.datasets.ImageFolder(
        options.folder, loader=read_jpeg,
        transform=v2.Compose([v2.RandomResizedCrop(224, antialias=True),
                              v2.RandomHorizontalFlip()]))
    loader = DataLoader(data, batch_size=options.batch, shuffle=True, num_workers=options.workers,
                        pin_memory=True, drop_last=True, persistent_workers=True,
                        prefetch_factor=4)
    for _ in range(options.epochs):
        yield loader


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("folder")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--workers", type=int, default=16)
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--no-data", action="store_true")
    options = parser.parse_args()
    torch.backends.cudnn.benchmark = True
    trainer = Trainer(options.seed)
    images = torch.zeros(options.batch, 3, 224, 224, dtype=torch.uint8)
    for _ in range(WARM_STEPS):
        trainer.step(images, torch.zeros(options.batch, dtype=torch.int64))
    trainer.busy_s()
    torch.manual_seed(options.seed)  # the loader's order is drawn from here on
    for number, epoch in enumerate(batches(options), 1):
        begun, count = time.monotonic(), 0
        for batch, labels in epoch:
            trainer.step(batch, labels)
            count += len(labels)
        busy = trainer.busy_s()
        took = time.monotonic() - begun
        print(json.dumps({"epoch": number, "seconds": took, "images_per_s": count / took,
                          "gpu_idle": max(0.0, 1 - busy / took)}), flush=True)


main()
