"""Compares the orders that `forebay plan --print` writes with what the libraries do. Each case runs
the library, then the program, and compares every line."""
import os
import random
import subprocess
import sys
import tempfile
import warnings

import numpy as np
import torch
from torch.utils.data import DataLoader, DistributedSampler, RandomSampler
from torchvision.datasets import ImageFolder

import forebay.torch

FOREBAY, TOP = sys.argv[1:3]
EPOCHS = 3


def touch(path):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb"):
        pass


class Paths(torch.utils.data.Dataset):
    """Samples are their own paths, and the worker that read them."""

    def __init__(self, paths):
        self.paths = paths

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, i):
        info = torch.utils.data.get_worker_info()
        return self.paths[i], info.id if info else 0


def plan(folder, *flags):
    out = subprocess.run(
        [FOREBAY, "plan", folder, "--print", *map(str, flags)], stdout=subprocess.PIPE, check=True
    ).stdout.decode(errors="surrogateescape")
    return out.split("\n")[:-1]


def compare(what, want, got):
    if want == got:
        return
    at = next((i for i, (w, g) in enumerate(zip(want, got)) if w != g), min(len(want), len(got)))
    sys.exit(f"{what}: line {at} of {len(want)}: {want[at:at+3]}, got {got[at:at+3]} of {len(got)}")


def lines(orders, paths):
    return [f"{epoch} {paths[i]}" for epoch, order in enumerate(orders) for i in order]


def flat(count):
    """A directory of so many files, and their sorted names."""
    folder = os.path.join(TOP, f"flat{count}")
    names = [f"{i:07}.npy" for i in range(count)]
    if not os.path.exists(folder):
        for name in names:
            touch(os.path.join(folder, name))
    return folder, names


def listed(count):
    """A list of so many names, for which there need be no files."""
    path = os.path.join(TOP, f"list{count}")
    names = [f"c{i % 7}/{i}" for i in range(count)]
    if not os.path.exists(path):
        with open(path, "w", encoding="ascii") as f:
            f.write("".join(name + "\n" for name in names))
    return ("--order", "list:" + path), names


def distributed(rng):
    for count in (1, 2, 7, 1000, 4099):
        where, names = listed(count)
        for world in (1, 2, 3, 8, 13):
            rank = rng.randrange(world)
            seed = rng.choice((0, 1, 42, 2**31, 2**32 + 5, 2**40 + rng.randrange(1000)))
            drop, set_epoch = rng.random() < 0.3, rng.random() < 0.8
            sampler = DistributedSampler(names, world, rank, seed=seed, drop_last=drop)
            orders = []
            for epoch in range(EPOCHS):
                if set_epoch:
                    sampler.set_epoch(epoch)
                orders.append(list(sampler))
            flags = [*where, "--world", world, "--rank", rank, "--seed", seed]
            flags += ["--epochs", EPOCHS] + ["--sampler-drop-last"] * drop
            flags += [] if set_epoch else ["--rule", "fixed"]
            compare(f"{count} files, {flags}", lines(orders, names), plan(TOP, *flags))
    # Without a shuffle.
    folder, names = flat(100)
    orders = [list(DistributedSampler(names, 7, 3, shuffle=False))]
    got = plan(folder, "--order", "sorted", "--sampler", "sequential", "--world", 7, "--rank", 3)
    compare("sequential", lines(orders, names), got)


def loaders(rng):
    """What a DataLoader draws, and who of its workers reads what."""
    for case in range(10):
        count = rng.choice((5, 99, 100))
        folder, names = flat(count)
        workers = (0, 0, 0, 2, 3)[case % 5]
        persistent = workers > 0 and rng.random() < 0.5
        batch, drop = rng.choice((1, 3, 16)), rng.random() < 0.5
        seed, kind = rng.randrange(2**34), ("global", "loader", "sampler")[case % 3]
        data = Paths(names)
        generator = torch.Generator().manual_seed(seed)
        more = {
            "global": {"shuffle": True},
            "loader": {"shuffle": True, "generator": generator},
            "sampler": {"sampler": RandomSampler(data, generator=generator)},
        }[kind]
        torch.manual_seed(seed)
        loader = DataLoader(
            data, batch, num_workers=workers, drop_last=drop, persistent_workers=persistent, **more
        )
        reads = [
            (f"{epoch} {path}", worker)
            for epoch in range(EPOCHS)
            for paths, ids in loader
            for path, worker in zip(paths, ids.tolist())
        ]
        flags = ["--order", "sorted", "--sampler", "torch-random", "--seed", seed, "--batch", batch]
        flags += ["--workers", workers, "--generator", kind, "--epochs", EPOCHS]
        flags += ["--drop-last"] * drop + ["--persistent-workers"] * persistent
        compare(f"{flags}", [line for line, _ in reads], plan(folder, *flags))
        if workers:
            want = [line for line, worker in reads if worker == 1]
            compare(f"worker 1, {flags}", want, plan(folder, *flags, "--worker", 1))


def rank_of_loader():
    """All together: a rank's DataLoader over an ImageFolder."""
    folder = os.path.join(TOP, "classes")
    rng = random.Random(4)
    names = ["b", "a.b", "a", "a-c", "Z", "ü", "empty.jpg"]
    for name in names:
        for i in range(rng.randrange(5, 60)):
            inner = rng.choice(("", "x/", "x-y/", "x/y/", "x.z/"))
            ext = rng.choice((".jpg", ".JPEG", ".png", ".txt", ".webp", ""))
            touch(f"{folder}/{name}/{inner}{rng.randrange(1000)}-{i}{ext}")
    touch(f"{folder}/no-class.jpg")
    os.symlink("x", f"{folder}/b/link")
    os.symlink("../a", f"{folder}/b/other")
    data = ImageFolder(folder, loader=lambda path: path)
    paths = [os.path.relpath(path, folder) for path, _ in data.samples]
    got = plan(folder, "--sampler", "sequential")
    compare("imagefolder", lines([range(len(paths))], paths), got)
    for rank in range(3):
        sampler = DistributedSampler(data, 3, rank, seed=9)
        loader = DataLoader(data, 8, sampler=sampler, num_workers=2)
        want = []
        for epoch in range(2):
            sampler.set_epoch(epoch)
            for batch, _ in loader:
                want += [f"{epoch} {os.path.relpath(path, folder)}" for path in batch]
        flags = ["--seed", 9, "--epochs", 2, "--world", 3, "--rank", rank, "--batch", 8]
        compare(f"rank {rank}", want, plan(folder, *flags, "--workers", 2))
        want = [line for line in want if line[0] == "1"]
        flags[2:4] = ["--first-epoch", 1]
        compare(f"epoch 1 of rank {rank}", want, plan(folder, *flags))

    every = sorted(
        os.path.relpath(os.path.join(root, name), folder)
        for root, _, names in os.walk(folder, followlinks=True)
        for name in names
    )
    got = plan(folder, "--sampler", "sequential", "--order", "sorted")
    compare("sorted", lines([range(len(every))], every), got)
    pngs = [path for path in every if path.lower().endswith((".png", ".txt"))]
    got = plan(folder, "--sampler", "sequential", "--order", "sorted", "--extensions", ".PNG,.txt")
    compare("extensions", lines([range(len(pngs))], pngs), got)


def own_generators(rng):
    """numpy's and Python's, by every rule; also a size with many draws."""

    def numpy_state(seed):
        state = np.random.RandomState(seed)
        return state.permutation, state.shuffle

    def numpy_generator(seed):
        generator = np.random.default_rng(seed)
        return generator.permutation, generator.shuffle

    def python(seed):
        generator = random.Random(seed)

        def permutation(count):
            order = list(range(count))
            generator.shuffle(order)
            return order

        return permutation, generator.shuffle

    makers = {"numpy": numpy_state, "numpy-generator": numpy_generator, "python": python}
    for name, make in makers.items():
        for count in (1, 2, 3, 64, 65, 1000, 30011):
            flags, names = listed(count)
            seed = rng.choice((0, 7, 2**32 - 1 if name == "numpy" else 2**63 + 11))
            permutation, shuffle = make(seed)
            held = np.arange(count)
            held_list = []
            for _ in range(EPOCHS):
                shuffle(held)
                held_list.append(held.copy())
            permutation, _ = make(seed)
            want = {
                "usual": [permutation(count) for _ in range(EPOCHS)],
                "fixed": [make(seed)[0](count) for _ in range(EPOCHS)],
                "reshuffle": held_list,
            }
            if seed < 100:
                want["reseed"] = [make(seed + e)[0](count) for e in range(EPOCHS)]
            for rule, orders in want.items():
                more = ["--sampler", name, "--seed", seed, "--rule", rule, "--epochs", EPOCHS]
                got = plan(TOP, *flags, *more)
                compare(f"{name}, {count} files, {rule}", lines(orders, names), got)


def read_epochs(loader, sampler, epochs, top):
    """What a loader reads, as the plan writes it."""
    want = []
    for epoch in epochs:
        if sampler:
            sampler.set_epoch(epoch)
        for paths, _ in loader:
            paths = [paths] if isinstance(paths, str) else paths
            want += [f"{epoch} {os.path.relpath(path, top)}" for path in paths]
    return want


def described():
    """The flags that forebay.torch.describe() gives make the order that the loader has."""
    top = os.path.join(TOP, "classes")
    images = ImageFolder(top, loader=lambda path: path)
    folder, names = flat(100)
    flats = Paths([os.path.join(folder, name) for name in names])
    subset = torch.utils.data.Subset(images, range(90, 10, -1))
    both = torch.utils.data.ConcatDataset([flats, subset])
    ranked = DistributedSampler(images, 3, 1, seed=11, drop_last=True)
    ranked.set_epoch(4)
    fixed = DistributedSampler(flats, 2, 1, seed=12)
    fixed.set_epoch(2)
    in_order = DistributedSampler(flats, 3, 2, shuffle=False)

    def g(seed):
        return torch.Generator().manual_seed(seed)

    cases = [
        (DataLoader(images, 7, sampler=ranked, num_workers=2, drop_last=True), ranked, {}),
        (DataLoader(flats, 4, sampler=fixed), None, {"set_epoch": False}),
        (DataLoader(flats, 4, sampler=in_order), in_order, {}),
        (DataLoader(subset, 8, shuffle=True, generator=g(5)), None, {}),
        (DataLoader(both, 8, sampler=RandomSampler(both, generator=g(2**40))), None, {}),
        (DataLoader(flats, None), None, {}),
        (DataLoader(images, 5, shuffle=True, drop_last=True), None, {}),
    ]
    file = os.path.join(TOP, "described")
    for loader, sampler, more in cases:
        torch.manual_seed(77)
        plan_of = forebay.torch.describe(loader, **more)
        plan_of.write_list(file)
        first = plan_of.first_epoch
        want = read_epochs(loader, sampler, range(first, first + 2), plan_of.directory)
        got = plan(*plan_of.arguments(file), "--epochs", 2)
        compare(str(plan_of), want, got)
    # Where a generator was drawn from, and where nothing is known, it says so.
    own = torch.utils.data.WeightedRandomSampler([1.0] * 100, 100)
    numbers = list(range(100))
    batches = torch.utils.data.BatchSampler(range(100), 3, False)
    for loader in (
        cases[6][0],
        cases[3][0],
        DataLoader(flats, sampler=own),
        DataLoader(flats, batch_sampler=batches),
        DataLoader(numbers),
        DataLoader(flats, sampler=RandomSampler(flats, replacement=True)),
    ):
        try:
            sys.exit(f"described: {forebay.torch.describe(loader)}")
        except ValueError as error:
            assert len(str(error)) > 20
    assert forebay.torch.describe(DataLoader(numbers), paths=names).sampler == "sequential"


def lost():
    """A daemon that has gone since attach() takes no training with it."""
    folder, names = flat(100)
    data = Paths([os.path.join(folder, name) for name in names])
    sampler = DistributedSampler(data, 2, 1, seed=3)
    with tempfile.NamedTemporaryFile("w", dir=TOP, suffix=".sh") as fake:
        fake.write("#!/bin/sh\necho nobody is there >&2\nexit 1\n")
        os.chmod(fake.name, 0o755)
        fake.file.close()
        forebay.torch.attach(DataLoader(data, 4, sampler=sampler), forebay="/bin/true")
        try:
            forebay.torch.attach(DataLoader(data, 4, sampler=sampler), forebay=fake.name,
                                 required=True)
            sys.exit("attached to nobody")
        except RuntimeError as error:
            assert "nobody is there" in str(error)
        plan_of = forebay.torch.describe(DataLoader(data, 4, sampler=sampler))
        forebay.torch._follow(sampler, plan_of, fake.name)  # pylint: disable=protected-access
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            sampler.set_epoch(7)
    assert sampler.epoch == 7
    assert ["nobody is there" in str(warning.message) for warning in seen] == [True], seen


def found():
    """The flags, found in what one worker of a real loader has read, the first or another."""
    folder = os.path.join(TOP, "found")
    for i in range(600):
        touch(f"{folder}/c{i % 3}/{i * 7919 % 1000:03}-{i}.{'txt' if i % 4 == 0 else 'png'}")
    data = ImageFolder(folder, loader=lambda path: path)
    every = Paths(sorted(f"{folder}/c{i % 3}/{name}" for i in range(3)
                         for name in os.listdir(f"{folder}/c{i % 3}")))
    for dataset, order in ((data, "imagefolder"), (every, "sorted")):
        sampler = DistributedSampler(dataset, 5, 3, seed=1234)
        sampler.set_epoch(2)
        loader = DataLoader(dataset, 8, sampler=sampler, num_workers=2)
        batches = [paths for paths, _ in loader]
        for worker in range(2):
            reads = [path for paths in batches[worker::2] for path in paths]
            log = os.path.join(TOP, "reads")
            with open(log, "w", encoding="utf-8") as f:
                f.write("".join(path + "\n" for path in reads))
            out = subprocess.run([FOREBAY, "plan", folder, "--find", log], stdout=subprocess.PIPE,
                                 check=True).stdout.decode()
            want = f"--order {order} --sampler torch-distributed --seed 1236 --world 5 --rank 3 "
            want += "--batch 8 --workers 2\n"
            assert out == want, (out, want)
            got = plan(folder, *out.split(), "--worker", worker)
            compare("found", [f"0 {os.path.relpath(path, folder)}" for path in reads], got)


def large():
    """Long enough for many refills of the generator."""
    flags, names = listed(300007)
    order = torch.randperm(300007, generator=torch.Generator().manual_seed(123456789)).tolist()
    compare("randperm", lines([order], names), plan(TOP, *flags, "--seed", 123456789))


def main():
    torch.set_num_threads(1)
    rng = random.Random(20)
    distributed(rng)
    loaders(rng)
    rank_of_loader()
    described()
    lost()
    found()
    own_generators(rng)
    large()


main()
