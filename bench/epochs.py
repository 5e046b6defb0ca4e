"""Sections of bench/run about known epochs: plans, and seeds found by themselves."""
import io
import json
import os
import shutil
import tempfile

import report
from measure import (drop_caches, fio_read, fio_sequential, has_huge_pages, make_files, output_of,
                     program)
from mounts import Mount, forebay_binary
from preload import HERE, PYTHON, Group, last_object, output_of_env
from sections import Bench, alternate, settle
from shares import Share

PIXEL_BYTES = 1.0  # of noise as a JPEG
PROBE_BYTES = 1 << 30
FILES = 14_100_000  # ImageNet-21k, as in the paper


class Plans(Bench):
    """A plan of this epoch and the next for 14.1 million names, from nothing."""

    name = "plan"

    def args(self):
        return ["--files", FILES // 100 if self.plan.rounds == 1 else FILES]

    def round(self, _no):
        seen = program("plan", *self.args())
        for key in ("all_s", "two_epochs_s", "lookup_ns", "peak_bytes"):
            self.see(key, seen[key])

    def rows(self):
        seen = self.seen
        return [
            report.Row(f"plan of {self.args()[1]:,} files, names, look-up and two epochs, s",
                       seen["all_s"].text(), "", "", "under 5", seen["all_s"].median < 5),
            report.Row("its memory, MB", seen["peak_bytes"].text("{:.0f}", 1e-6), "", "",
                       "under 1000", seen["peak_bytes"].median < 1e9),
            report.Row("from a path to its chunk in the next epoch, us",
                       seen["lookup_ns"].text("{:.2f}", 1e-3), "", "", "", None),
        ]

    def commands(self):
        return [" ".join(["bench_plan"] + [str(arg) for arg in self.args()])]


class Seeds(Bench):
    """The seed of a shuffle from a worker's first accesses; as many trials a round."""

    name = "seeds"

    def args(self, no):
        trials, streams, alone = (20, 7, 0) if self.plan.rounds == 1 else (200, 210, 5)
        return ["bench", "seeds", "--trials", trials, "--streams", streams, "--alone", alone,
                "--random", no + 1]

    def round(self, no):
        words = [str(arg) for arg in self.args(no)]
        seen = json.loads(output_of([forebay_binary(), *words, "--json"]))
        for key in ("trials", "found", "wrong", "alone", "alone_found", "alone_wrong", "streams",
                    "believed"):
            self.see(key, seen[key])
        self.see("ms", 1e3 * seen["seconds"] / seen["trials"])
        for level, speed in seen["seeds_per_cpu_second"].items():
            self.see(level, speed)

    def total(self, key):
        return sum(self.seen[key].values)

    def rows(self):
        found, trials = self.total("found"), self.total("trials")
        wrong = self.total("wrong") + self.total("alone_wrong") + self.total("believed")
        alone = self.total("alone")
        streams = self.total("streams")
        speeds = ", ".join(f"{level} {self.seen[level].text('{:.1f}', 1e-6)}"
                           for level in ("plain", "avx2", "avx512"))
        return [
            report.Row(f"seeds found within 64 accesses, of {trials:,}", f"{found / trials:.1%}",
                       "", "", "at least 99%", found >= 0.99 * trials),
            *([report.Row(f"the same where one worker is all that is seen, of {alone:,}",
                          f"{self.total('alone_found') / alone:.1%}", "", "", "at least 99%",
                          self.total("alone_found") >= 0.99 * alone)] if alone else []),
            report.Row(f"seeds believed wrongly, there and in {streams:,} other streams",
                       f"{wrong}", "", "", "none", wrong == 0),
            report.Row("a search, ms", self.seen["ms"].text("{:.0f}"), "", "", "", None),
            report.Row("million seeds a second of one core", speeds, "", "", "", None),
        ]

    def commands(self):
        return [" ".join(["forebay"] + [str(arg) for arg in self.args(0)])]


def disk_speed(path, size, huge=False):
    return fio_read(fio_sequential(path, size, 2), huge)


class Door(Bench):
    """Epochs at the door of the cache, in process, against the disk read in sequence."""

    name = "door"

    def items(self):
        return 4000 if self.plan.rounds == 1 else 10000

    def args(self, readers, plan, log=0):
        return ["--dir", self.folder + ("/log" if log else "/cache"), "--items", self.items(),
                "--readers", readers, "--plan", plan, "--log", log]

    def round(self, no):
        for which in alternate(no, "disk", "plain", "plan", "log"):
            if which == "disk":
                segments = self.folder + "/cache/segments"
                size = self.items() * self.plan.file_bytes
                if not os.path.exists(segments):
                    program("door", *self.args(1, 0))
                self.see("disk", disk_speed(segments, size))
                if has_huge_pages():
                    self.see("disk at best", disk_speed(segments, size, True))
                continue
            for readers in (1, 2):
                seen = program("door", *self.args(readers, int(which != "plain"),
                                                  int(which == "log")))
                self.see(f"{which} {readers}", seen["bytes_per_s"])
                self.see(f"{which} {readers} dram", seen["from_dram"])

    def rows(self):
        rows = []
        for readers in (1, 2):
            plan, plain = self.seen[f"plan {readers}"], self.seen[f"plain {readers}"]
            ratio = plan.over(self.seen["disk"])
            rows.append(report.Row(
                f"epochs of {self.items():,} items of 100 KiB on NVMe, with a plan, {readers} "
                "reader(s), GB/s (disk: 1 MiB, O_DIRECT, in sequence)", plan.text(scale=1e-9),
                self.seen["disk"].text(scale=1e-9), ratio.text("{:.0%}"),
                "at least 80%" if readers == 1 else "", ratio.median >= 0.8
                if readers == 1 else None))
            if "disk at best" in self.seen:
                best = self.seen["disk at best"]
                rows.append(report.Row("the same, against a disk read into huge pages, as we do",
                                       plan.text(scale=1e-9), best.text(scale=1e-9),
                                       plan.over(best).text("{:.0%}"), "", None))
            rows.append(report.Row(
                f"the same, in DRAM when they are read; without a plan, GB/s",
                self.seen[f"plan {readers} dram"].text("{:.1%}"), plain.text(scale=1e-9),
                plan.over(plain).text() + "x", "", None))
            log = self.seen[f"log {readers}"]
            rows.append(report.Row(
                "the same while the next epoch is laid out on the disk, GB/s (only reading); "
                f"{self.seen[f'log {readers} dram'].median:.0%} from DRAM", log.text(scale=1e-9),
                plan.text(scale=1e-9), log.over(plan).text() + "x", "", None))
        return rows

    def commands(self):
        return [" ".join(["bench_door"] + [str(arg) for arg in self.args(1, 1)])]


class Training(Bench):
    """A torch DataLoader where the page cache cannot hold the data set: epochs 2 and 3. Beside it
    what the disk gives in sequence: a plan can read what is not in DRAM no faster than that."""

    name = "epochs"
    rounds_max = 3
    modes = ("native", "nopfs", "bound", "plain", "plan", "found")
    extra = []
    what = ""

    def make_data(self):
        return make_files(self.data, self.files, self.plan.file_bytes)

    def prepare(self):
        self.files = self.plan.epoch_files or (12000 if self.plan.rounds == 1 else 40000)
        data_bytes = self.files * self.plan.file_bytes
        self.workers = self.plan.epoch_workers or (
            (1,) if self.plan.rounds == 1 else (1, 2, 4, 16))
        # What program and page cache, or program and daemon, have together.
        self.limit = max(data_bytes // 2, 512 << 20)
        self.groups = {}
        try:
            for which in ("native", "ours"):
                self.groups[which] = Group("epochs-" + which, self.limit)
        except OSError:
            for group in self.groups.values():
                group.remove()
            self.groups = {}
        self.data = self.folder + "/data"
        self.listing = self.folder + "/list"
        names = self.make_data()
        with open(self.listing, "w", encoding="ascii") as f:
            f.write("\n".join(names) + "\n")
        self.fast = tempfile.mkdtemp(prefix="forebay-bench-", dir="/dev/shm")
        for name in names[:self.files // 4]:
            os.makedirs(os.path.dirname(os.path.join(self.fast, name)), exist_ok=True)
            shutil.copy(os.path.join(self.data, name), os.path.join(self.fast, name))
        self.probe = self.folder + "/probe"
        with open(self.probe, "wb") as f:
            for _ in range(PROBE_BYTES >> 20):
                f.write(os.urandom(1 << 20))
        settle()

    def share_args(self, workers):
        # What the program leaves of the limit, which in a native run is the page cache's: with one
        # worker it has 125 MB of its own and 60 MB of libraries, each other one 56 MB.
        data_bytes = self.files * self.plan.file_bytes
        memory = max(self.limit - ((128 + 64 * workers) << 20), self.limit // 3, 128 << 20)
        return ["--memory", str(memory), "--cache-size", str(2 * data_bytes + (1 << 30)),
                "--free-space-ratio", "0.01", "--metadata-ttl", "1h"]

    def words(self, mode, workers):
        # A seed that no search finds in time: no plan.
        extra = {"nopfs": ["--fast", self.fast], "bound": ["--no-io"], "plan": ["--plan"],
                 "plain": ["--seed", "3000000000"]}
        epochs = 4 if mode == "found" else 3
        return [PYTHON, "-W", "ignore", HERE + "/training.py", self.data, "--list", self.listing,
                "--epochs", str(epochs), "--workers", str(workers), *extra.get(mode, []),
                *self.extra]

    def one(self, mode, workers):
        words = self.words(mode, workers)
        group = self.groups.get("native" if mode in ("native", "nopfs", "bound") else "ours")
        wrap = group.command if group else lambda command: command
        drop_caches()
        if mode in ("native", "nopfs", "bound"):
            seconds = last_object(output_of_env(wrap(words), os.environ))["seconds"]
            return seconds[1:], None
        share = Share(self.data, self.folder + "/share", *self.share_args(workers), wrap=wrap)
        try:
            env = {**share.env, "FOREBAY": forebay_binary(), "PYTHONPATH": os.path.join(
                os.path.dirname(os.path.dirname(forebay_binary())), "python")}
            before = share.status()["counters"]["source_read_bytes"]
            first = last_object(output_of_env(wrap(share.command(
                *self.words("found" if mode == "found" else "plain", workers), "--epochs", "1")),
                                env))
            filled = share.status()["counters"]["source_read_bytes"]
            seconds = last_object(output_of_env(wrap(share.command(*words)), env))["seconds"]
            after = share.status()["counters"]
            self.see("first " + mode, sum(first["seconds"]))
            self.see("filled " + mode, filled - before)
            seen = {key: after[key] for key in ("plan_reads", "plan_in_time")}
            seen["source"] = after["source_read_bytes"] - filled
            seen["disk"] = after["plan_brought_data_bytes"] / sum(seconds)
            return seconds[-2:], seen
        finally:
            share.stop()

    def round(self, no):
        for workers in self.workers:
            for mode in alternate(no, *self.modes):
                seconds, seen = self.one(mode, workers)
                self.see(f"{mode} {workers}", 1e6 * sum(seconds) / len(seconds) / self.files)
                if seen and seen["plan_reads"]:
                    self.see(f"{mode} {workers} in time",
                             seen["plan_in_time"] / seen["plan_reads"])
                if seen:
                    self.see(f"{mode} {workers} source", seen["source"])
                if mode == "plan":
                    self.see(f"{mode} {workers} disk", seen["disk"])
                    self.see(f"fio {workers}", disk_speed(self.probe, PROBE_BYTES))

    def finish(self):
        shutil.rmtree(self.fast, ignore_errors=True)
        super().finish()
        for group in self.groups.values():
            group.remove()

    def rows(self):
        names = {"nopfs": "a quarter in memory, as NoPFS places", "bound": "no I/O at all",
                 "plain": "Forebay without a plan", "plan": "Forebay with a plan",
                 "found": "Forebay, seed found by itself"}
        limit = f"{self.limit >> 20} MiB" if self.groups else "no limit on memory"
        rows = []
        for workers in self.workers:
            native = self.seen[f"native {workers}"]
            for mode, text in names.items():
                seen = self.seen[f"{mode} {workers}"]
                ratio = native.over(seen)
                target = ("at least 5x" if mode == "plan" and workers == 1 and not self.what
                          else "")
                in_time = self.seen.get(f"{mode} {workers} in time")
                rows.append(report.Row(
                    f"torch DataLoader{self.what}, {self.files:,} files, {limit}, workers: "
                    f"{workers}, {text}, "
                    "us a file (native)" + (f"; {in_time.median:.0%} in time" if in_time else ""),
                    seen.text("{:.1f}"), native.text("{:.1f}"), ratio.text() + "x", target,
                    ratio.median >= 5 if target else None))
            disk, fio = self.seen[f"plan {workers} disk"], self.seen[f"fio {workers}"]
            rows.append(report.Row(
                f"what the plan read from the disk meanwhile, workers: {workers}, GB/s (fio: 1 MiB, "
                "in sequence, right after)", disk.text(scale=1e-9), fio.text(scale=1e-9),
                disk.over(fio).text("{:.0%}"), "", None))
        again = max(self.seen[f"plan {w} source"].median for w in self.workers)
        rows.append(report.Row("bytes read from the source after the first epoch, with a plan",
                               f"{again:.0f}", "", "", "0", again == 0))
        return rows

    def commands(self):
        return [" ".join(["forebay run --source DATA"] + self.share_args(self.workers[0]) +
                         ["-- python3 bench/training.py DATA --list FILE --workers N --plan"])]


class Decoding(Training):
    """The same with files that are JPEGs and decoded: what is left of it for a GPU."""

    name = "epochs-jpeg"
    modes = ("native", "nopfs", "bound", "plain", "plan", "found")
    extra = ["--decode"]
    what = " and JPEG decode"
    pictures = 32

    def make_data(self):
        return make_pictures(self.data, self.files, self.plan.file_bytes, self.pictures)


def make_pictures(folder, count, size, pictures):
    """JPEGs of noise, of about that size; what is behind a picture's end makes it its own."""
    from PIL import Image  # pylint: disable=import-outside-toplevel

    kinds = []
    side = int((size / PIXEL_BYTES) ** 0.5)
    for _ in range(pictures):
        out = io.BytesIO()
        Image.frombytes("RGB", (side, side), os.urandom(3 * side ** 2)).save(out, "JPEG",
                                                                             quality=92)
        kinds.append(out.getvalue())
    names = []
    for no in range(count):
        name = f"d{no // 1000:03}/f{no:06}.jpg"
        path = os.path.join(folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as f:
            f.write(kinds[no % pictures] + b"%08d" % no)
        names.append(name)
    return names


class FarSource(Bench):
    """Behind 150 ms and 1 Gbit/s, a cache of half of the data set: seconds that a GPU waits, and
    bytes of the source an epoch. Where nothing is kept all files take as long: native reads a
    sixteenth of them, once."""

    name = "epochs-far"
    rounds_max = 1
    modes = ("native", "uniform", "plan")
    workers = 4
    step_ms = 50
    epochs = 3
    native_part = 16

    def prepare(self):
        self.files = self.plan.epoch_files or (1024 if self.plan.rounds == 1 else 4096)
        self.workers = (self.plan.epoch_workers or (self.workers,))[0]
        # How many requests are under way depends on the buffers that there are: an eighth of this.
        self.memory = (256 if self.files >= 4096 else 96) << 20
        self.data = self.folder + "/data"
        self.listing = self.folder + "/list"
        names = make_files(self.data, self.files, self.plan.file_bytes)
        for suffix, some in (("", names), (".native", names[::self.native_part])):
            with open(self.listing + suffix, "w", encoding="ascii") as f:
                f.write("\n".join(some) + "\n")
        settle()

    def data_bytes(self):
        return self.files * self.plan.file_bytes

    def mount_args(self, mode):
        # DRAM, more than half of the memory, is a part of the cache.
        disk = max(self.data_bytes() // 2 - self.memory * 5 // 8, 32 << 20)
        kept = ["--no-cache"] if mode == "native" else []
        return ["--memory", str(self.memory), "--cache-size", str(disk),
                "--block-size", "128K", "--free-space-ratio", "0.01", "--metadata-ttl", "1h",
                "--fault", "latency=150ms,bandwidth=125M", *kept]

    def words(self, mode):
        extra = ["--plan"] if mode == "plan" else ["--seed", "3000000000"]
        return [PYTHON, "-W", "ignore", HERE + "/training.py", self.folder + "/far/mnt", "--list",
                self.listing + (".native" if mode == "native" else ""),
                "--epochs", str(1 if mode == "native" else self.epochs),
                "--workers", str(self.workers), "--step", str(self.step_ms), "--drop", "--count",
                *extra]

    def round(self, no):
        for mode in alternate(no, *self.modes):
            # A program under the preload library would read the directory itself.
            mount = Mount(self.data, self.folder + "/far", *self.mount_args(mode))
            try:
                env = {**mount.env, "FOREBAY": forebay_binary(), "PYTHONPATH": os.path.join(
                    os.path.dirname(os.path.dirname(forebay_binary())), "python")}
                seen = last_object(output_of_env(self.words(mode), env))
                held = sum(tier["budget_bytes"] for tier in mount.status()["tiers"])
            finally:
                mount.stop()
                shutil.rmtree(self.folder + "/far", ignore_errors=True)
            part = self.native_part if mode == "native" else 1
            for epoch, stall in enumerate(seen["stalls"]):
                self.see(f"{mode} {epoch}", stall * part)
            for epoch in range(1, len(seen["source"])):
                self.see(f"{mode} bytes {epoch}", (seen["source"][epoch] -
                                                   seen["source"][epoch - 1]) / self.data_bytes())
            if mode == "plan":
                self.see("bound", max(0, 1 - held / self.data_bytes()))

    def what(self):
        return (f"{self.files:,} files behind 150 ms and 1 Gbit/s, cache of "
                f"{1 - self.seen['bound'].median:.0%}, {self.workers} workers, {self.step_ms} ms a "
                "batch")

    def rows(self):
        rows = []
        native = self.seen["native 0"]
        for epoch in range(self.epochs):
            uniform, plan = self.seen[f"uniform {epoch}"], self.seen[f"plan {epoch}"]
            rows.append(report.Row(
                f"{self.what()}: seconds that epoch {epoch + 1} waits, uniform caching (every read "
                "from the source)", uniform.text("{:.1f}"), native.text("{:.1f}"),
                native.over(uniform).text() + "x", "", None))
            rows.append(report.Row(
                f"the same, with a plan (uniform caching; {native.over(plan).text()}x of native)",
                plan.text("{:.1f}"), uniform.text("{:.1f}"), uniform.over(plan).text() + "x",
                "less", plan.median < uniform.median))
        for epoch in range(1, self.epochs):
            plan, uniform = self.seen[f"plan bytes {epoch}"], self.seen[f"uniform bytes {epoch}"]
            bound = self.seen["bound"]
            ratio = plan.over(bound).text() + "x" if min(bound.values) > 0 else ""
            rows.append(report.Row(
                f"the same, share of the data set read from the source in epoch {epoch + 1}, with "
                f"a plan (bound: what the cache has no room for; uniform {uniform.text()})",
                plan.text(), bound.text(), ratio, "", None))
        return rows

    def commands(self):
        return [" ".join(["forebay mount DATA MNT"] + self.mount_args("plan")),
                "python3 bench/training.py MNT --list FILE --workers 4 --plan --epochs 3 "
                "--step 50 --drop --count"]


SECTIONS = (Plans, Seeds, Door, Training, Decoding, FarSource)
