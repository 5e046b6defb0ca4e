"""What a torch DataLoader is going to read, told to Forebay before it does.

    import forebay.torch

    forebay.torch.attach(loader)    # from now on its files are in memory when they are read

The data set lies below a Forebay mount, or below a source of `forebay run`. Where no daemon serves
it, attach() warns, and the program goes on as without that line. To look at a plan instead:

    loader = torch.utils.data.DataLoader(ImageFolder("/data/train"), batch_size=128, shuffle=True,
                                         num_workers=4, generator=torch.Generator().manual_seed(1))
    plan = forebay.torch.describe(loader)
    print(plan)             # forebay plan /data/train --order list:FILE --sampler torch-random ...
    plan.write_list("files")
    subprocess.run(["forebay", "plan", *plan.arguments("files"), "--print"])

A plan needs an order that is fixed beforehand. Where something else decides, as a sampler of the
program's own does, or a generator that others draw from, describe() raises ValueError and says so.
"""
import dataclasses
import os
import shlex
import shutil
import subprocess
import tempfile
import typing
import warnings

import torch
from torch.utils import data as _data

__all__ = ["Plan", "attach", "describe"]

# torch.randperm() has had another algorithm for so many numbers since that version.
_LARGE = (2**32 - 1) // 20
_LARGE_SINCE = (2, 6)
_PATIENCE_S = 120  # for the tool that hands a plan over

# Of handing over: training goes on without the cache.
_FAILURES = (RuntimeError, OSError, subprocess.SubprocessError)

# Where data sets that have no `samples` keep their files.
_PATHS = ("paths", "files", "filenames", "file_list", "image_paths", "images")


@dataclasses.dataclass(frozen=True)
class Plan:
    """The flags of `forebay plan`, by name, and the files in the data set's order."""

    directory: str
    paths: typing.Sequence[str]  # relative to it
    sampler: str
    seed: int = 0
    rule: str = "usual"
    generator: str = "global"
    persistent_workers: bool = False
    randperm: str = "new"
    world: int = 1
    rank: int = 0
    batch: int = 1
    workers: int = 0
    drop_last: bool = False
    sampler_drop_last: bool = False
    first_epoch: int = 0

    def write_list(self, file):
        """Write the paths to a file, one a line, as `--order list:FILE` takes them."""
        with open(file, "w", encoding="utf-8", errors="surrogateescape") as f:
            for path in self.paths:
                if "\n" in path:
                    raise ValueError(f"{path!r} has more than one line, and cannot be in a list")
                f.write(path + "\n")

    def arguments(self, list_file):
        """The words behind `forebay plan`; list_file is what write_list() has written."""
        words = [self.directory, "--order", f"list:{os.fspath(list_file)}"]
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            flag = "--" + field.name.replace("_", "-")
            if field.name in ("directory", "paths") or value == field.default:
                continue
            words += [flag] if value is True else [flag, str(value)]
        return words

    def __str__(self):
        return shlex.join(["forebay", "plan", *self.arguments("FILE")])


def attach(loader, *, paths=None, set_epoch=True, forebay=None, required=False):
    """Hand the plan of a DataLoader to the daemon that serves its files; returns the plan.

    To be called before the loader's first epoch. The program reads as before, in the order it has:
    only the files are in memory by then. With a DistributedSampler, set_epoch() may jump: the plan
    follows it. Where no daemon serves the files, or it does not take the plan, a warning says so,
    None is returned, and the loader is as it was; with required=True that is a RuntimeError.
    """
    plan = describe(loader, paths=paths, set_epoch=set_epoch)
    try:
        _hand_over(plan, forebay)
    except _FAILURES as error:
        if required:
            raise
        warnings.warn(f"training goes on without a plan: {error}", stacklevel=2)
        return None
    if plan.sampler == "torch-distributed" and set_epoch:
        _follow(loader.sampler, plan, forebay)
    return plan


def _hand_over(plan, forebay=None):
    program = forebay or os.environ.get("FOREBAY") or shutil.which("forebay")
    if not program:
        raise RuntimeError("the program forebay is not in PATH; name it with forebay=")
    # The tool must not read through the library that the program itself runs under.
    environment = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}
    with tempfile.TemporaryDirectory(prefix="forebay-plan-") as folder:
        names = os.path.join(folder, "files")
        plan.write_list(names)
        done = subprocess.run([program, "plan", *plan.arguments(names)], env=environment,
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
                              timeout=_PATIENCE_S)
    if done.returncode:
        raise RuntimeError(done.stderr.strip() or f"forebay plan failed: {done.returncode}")


def _follow(sampler, plan, forebay):
    """Tell the daemon of epochs that do not come in turn."""
    known = {"next": plan.first_epoch}
    real = sampler.set_epoch

    def set_epoch(epoch):
        real(epoch)
        if epoch not in (known["next"], known["next"] - 1):
            try:
                _hand_over(dataclasses.replace(plan, first_epoch=epoch), forebay)
            except _FAILURES as error:
                # Training goes on without the cache.
                warnings.warn(f"forebay does not follow to epoch {epoch}: {error}")
        known["next"] = epoch + 1

    sampler.set_epoch = set_epoch


def describe(loader, *, paths=None, set_epoch=True):
    """The plan of a DataLoader, to be called before its first epoch.

    paths are the data set's files, sample by sample; they are found in ImageFolder and its kind, in
    Subset and ConcatDataset of them, and in data sets that keep a list of paths. set_epoch=False
    says that the program does not call set_epoch() of its DistributedSampler.
    """
    if isinstance(loader.dataset, _data.IterableDataset):
        raise ValueError("an IterableDataset decides itself what comes next: there is no plan")
    files = list(map(os.fspath, _paths_of(loader.dataset) if paths is None else paths))
    if len(files) != len(loader.dataset):
        raise ValueError(f"{len(files)} paths for {len(loader.dataset)} samples; give paths=")
    directory = _directory_of(files)
    return Plan(
        directory=directory,
        paths=[os.path.relpath(file, directory) for file in files],
        batch=_batch_of(loader),
        workers=loader.num_workers,
        drop_last=loader.drop_last,
        randperm="new" if len(files) < _LARGE or _version() >= _LARGE_SINCE else "old",
        **_order_of(loader, set_epoch),
    )


def _version():
    return tuple(int(part) for part in torch.__version__.split(".")[:2])


def _is_path(value):
    return isinstance(value, (str, os.PathLike))


def _paths_of(dataset):
    """The files of a data set, in its order."""
    if isinstance(dataset, _data.Subset):
        inner = _paths_of(dataset.dataset)
        return [inner[i] for i in dataset.indices]
    if isinstance(dataset, _data.ConcatDataset):
        return [path for part in dataset.datasets for path in _paths_of(part)]
    samples = getattr(dataset, "samples", None)  # torchvision's DatasetFolder: (path, class)
    if isinstance(samples, list) and all(isinstance(s, tuple) and _is_path(s[0]) for s in samples):
        return [sample[0] for sample in samples]
    for name in _PATHS:
        value = getattr(dataset, name, None)
        if isinstance(value, (list, tuple)) and len(value) == len(dataset):
            if all(map(_is_path, value)):
                return value
    raise ValueError(
        f"where a {type(dataset).__name__} has its files is not known; give paths=, one a sample"
    )


def _directory_of(files):
    if not files:
        raise ValueError("the data set is empty")
    folders = {os.path.dirname(os.path.abspath(file)) for file in files}
    return os.path.commonpath(folders)


def _batch_of(loader):
    if loader.batch_size is not None:
        return loader.batch_size
    if loader.batch_sampler is not None:
        raise ValueError("a batch sampler of the program's own decides the order: there is no plan")
    return 1


def _order_of(loader, set_epoch):
    """Who shuffles: flags of the plan."""
    sampler = loader.sampler
    if type(sampler) is _data.SequentialSampler:
        return {"sampler": "sequential"}
    if type(sampler) is _data.DistributedSampler:
        return _distributed(sampler, set_epoch)
    if type(sampler) is _data.RandomSampler:
        return _random(loader, sampler)
    raise ValueError(f"what a {type(sampler).__name__} chooses is not known: there is no plan")


def _distributed(sampler, set_epoch):
    order = {
        "sampler": "torch-distributed" if sampler.shuffle else "sequential",
        "world": sampler.num_replicas,
        "rank": sampler.rank,
        "sampler_drop_last": sampler.drop_last,
    }
    if not sampler.shuffle:
        return order
    if set_epoch:
        return {**order, "seed": sampler.seed, "first_epoch": sampler.epoch}
    return {**order, "seed": sampler.seed + sampler.epoch, "rule": "fixed"}


def _random(loader, sampler):
    if sampler.replacement or sampler.num_samples != len(loader.dataset):
        raise ValueError("a RandomSampler that does not read each sample once has no plan")
    if sampler.generator is None:
        kind, generator = "global", torch.default_generator
    else:
        kind = "loader" if loader.generator is sampler.generator else "sampler"
        generator = sampler.generator
    seed = generator.initial_seed()
    fresh = torch.Generator().manual_seed(seed).get_state()
    if not torch.equal(fresh, generator.get_state()):
        whose = "torch's own generator" if kind == "global" else "the generator"
        raise ValueError(
            f"{whose} has been drawn from since it was seeded; give the DataLoader a generator of "
            "its own, and describe it before its first epoch"
        )
    return {
        "sampler": "torch-random",
        "seed": seed % 2**64,
        "generator": kind,
        "persistent_workers": loader.persistent_workers,
    }
