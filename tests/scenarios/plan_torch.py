"""What plan_torch runs: `make DIR` writes a data set, `train MOUNT first` reads it through a mount
with torch's DataLoader, looks at the daemon's counters, and prints the epoch in the midst of which
it ends; `train MOUNT EPOCH` goes on with that one. `find MOUNT` reads without a plan. `alone DIR`
attaches to files that no daemon serves."""
import hashlib
import json
import os
import subprocess
import sys
import time
import warnings

FILES = 600
BYTES = 60_000
BATCH = 16
READY = 2 * BATCH
BEGIN = 4 * BATCH  # what workers read before anybody waits for them
FIND_S = 400
TRAIN_S = 400


def content(number):
    return hashlib.sha256(b"%d" % number).digest() * (BYTES // 32)


def make(folder):
    for number in range(FILES):
        part = os.path.join(folder, str(number % 7))
        os.makedirs(part, exist_ok=True)
        with open(os.path.join(part, f"{number}.jpg"), "wb") as f:
            f.write(content(number))


class Data:
    """Reads a file past the page cache, which would have the second epoch otherwise."""

    def __init__(self, folder):
        self.paths = sorted(os.path.join(folder, str(n % 7), f"{n}.jpg") for n in range(FILES))

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, number):
        fd = os.open(self.paths[number], os.O_RDONLY)
        try:
            data = os.read(fd, BYTES)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(fd)
        name = os.path.basename(self.paths[number])
        assert data == content(int(name.split(".")[0])), f"{self.paths[number]}: wrong bytes"
        return number


def ask(*words):
    return json.loads(subprocess.check_output([os.environ["FOREBAY"], *words, "--json"]))


def counters():
    return ask("status")["daemons"][0]["counters"]


def ready():
    """Files that wait for the reader, and the epoch they are of."""
    plans = ask("streams")["plans"]
    return (plans[0]["ready"], plans[0]["epoch"]) if plans else (0, 0)


def step(want=READY, deadline=60):
    """What a GPU would do meanwhile: nothing that takes a fixed time."""
    end = time.monotonic() + deadline
    while ready()[0] < want and time.monotonic() < end:
        time.sleep(0.01)


def epoch(loader, batches=None, wait=True):
    """One epoch, or its beginning. Returns how the counters have changed, and what was read."""
    before = counters()
    seen = []
    for no, numbers in enumerate(loader):
        seen += numbers.tolist()
        if wait and no % 2 == 0 and no + 4 < len(loader):
            step()
        if no + 1 == batches:
            break
    end = time.monotonic() + 60
    while True:
        after = counters()
        change = {key: after[key] - before.get(key, 0) for key in after}
        if change["plan_reads"] >= len(seen) or time.monotonic() > end or not wait:
            return change, seen
        time.sleep(0.05)


def foretold():
    """Reads that plans have foretold. They are counted a little later: when no more come."""
    last, now = -1, counters()["plan_reads"]
    while now != last:
        time.sleep(0.5)
        last, now = now, counters()["plan_reads"]
    return now


def find(mount):
    """Without a plan: the seed is found, and drives one."""
    from torch.utils.data import DataLoader, DistributedSampler

    data = Data(mount)
    sampler = DistributedSampler(data, num_replicas=1, rank=0, seed=4242)
    loader = DataLoader(data, batch_size=BATCH, num_workers=3, sampler=sampler)
    end = time.monotonic() + FIND_S
    number = 0
    while time.monotonic() < end:
        sampler.set_epoch(number)
        before = counters()["plan_reads"]
        seen = epoch(loader, wait=False)[1]
        told = foretold() - before
        plans = ask("streams")["plans"]
        if (plans and told >= len(seen) - 4
                and plans[0]["seed"] + plans[0]["epoch"] == 4242 + number):
            assert plans[0]["found"] and plans[0]["batch"] == BATCH, plans
            assert plans[0]["workers"] == 3, plans
            print(f"epoch {number}: foretold")
            return
        # A search is under way, or the next epoch will be searched.
        pause = time.monotonic() + 5
        while not ask("streams")["plans"] and time.monotonic() < pause:
            time.sleep(0.1)
        number += 1
    raise AssertionError("no seed was found")


def alone(folder):
    """Where Forebay does not run, a script that has attach() trains as it would without."""
    from torch.utils.data import DataLoader, DistributedSampler

    import forebay.torch

    data = Data(folder)
    for program, why in ((None, "no daemon serves"), ("/none/forebay", "/none/forebay")):
        sampler = DistributedSampler(data, num_replicas=1, rank=0, seed=7)
        loader = DataLoader(data, batch_size=BATCH, sampler=sampler)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            assert forebay.torch.attach(loader, forebay=program) is None
            orders = []
            for number in (0, 5):
                sampler.set_epoch(number)
                orders.append([n for batch in loader for n in batch.tolist()])
        assert len(caught) == 1 and caught[0].filename == __file__, caught
        assert "without a plan" in str(caught[0].message) and why in str(caught[0].message), caught
        assert orders[0] != orders[1] and sorted(orders[0]) == sorted(orders[1])
        try:
            forebay.torch.attach(loader, forebay=program, required=True)
        except (RuntimeError, OSError) as error:
            assert why in str(error), error
        else:
            raise AssertionError("required, and not refused")


def read_epoch(loader, number, batches=None):
    """One epoch with a plan, or its beginning: whether it was as a plan promises."""
    loader.sampler.set_epoch(number)
    step(BEGIN, 20)
    change, seen = epoch(loader, batches)
    planned, in_time = change["plan_reads"], change["plan_in_time"]
    print(f"epoch {number}: {len(seen)} read, {planned} planned, {in_time} in time, "
          f"{change['hits_dram']} in DRAM, {change['source_read_bytes']} B of the source",
          file=sys.stderr)
    assert planned >= len(seen) - 4, "accesses were not foretold"
    return change["hits_dram"] >= len(seen) - BEGIN and change["source_read_bytes"] == 0


def train(mount, when):
    """Epochs until one of them comes from DRAM and has nothing of the source: where others keep the
    disk busy it is not waited for, and what finds no room there is fetched once more."""
    from torch.utils.data import DataLoader, DistributedSampler

    import forebay.torch

    data = Data(mount)
    sampler = DistributedSampler(data, num_replicas=1, rank=0, seed=7)
    loader = DataLoader(data, batch_size=BATCH, num_workers=2, sampler=sampler)
    end = time.monotonic() + TRAIN_S
    number = 0 if when == "first" else int(when)
    if when == "first":
        plan = forebay.torch.attach(loader)
        assert plan.directory == mount, plan.directory
    while not read_epoch(loader, number) or number == 0:
        assert time.monotonic() < end, "every epoch had something of the source, or of the disk"
        number += 1
    if when == "first":
        number += 1
        read_epoch(loader, number, 10)
        print(number)
    assert ready()[1] == number, (number, ready())


if __name__ == "__main__":
    if sys.argv[1] == "make":
        make(sys.argv[2])
    elif sys.argv[1] == "alone":
        alone(sys.argv[2])
    elif sys.argv[1] == "find":
        find(sys.argv[2])
    else:
        train(*sys.argv[2:4])
