"""The sections of bench/run about the preload door: hits in the program's own process."""
import json
import os
import shutil
import subprocess
import tempfile
import time

import report
from measure import Samples, drop_caches, make_files
from mounts import Failed, bench_program
from sections import Bench, alternate, settle
from shares import Share

HERE = os.path.dirname(os.path.abspath(__file__))
PYTHON = "/usr/bin/python3"  # the one that Debian's modules belong to
TURNS = 3


def last_object(text):
    return json.loads(text.strip().split("\n")[-1])


def together(command, processes, env):
    """The mean of what so many processes at once say a file takes, over their number."""
    running = [
        subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                         stderr=subprocess.PIPE, text=True)
        for _ in range(processes)
    ]
    times = []
    for process in running:
        out, err = process.communicate()
        if process.returncode != 0:
            raise Failed(f"{command[0]}: {err.strip() or out.strip()}")
        times.append(last_object(out)["us_per_file"])
    return sum(times) / len(times) / processes


class Preload(Bench):
    """open+fstat+read+close of cached files against the same files on tmpfs, and `acquire`."""

    name = "preload"
    sizes = {"100 KiB": 100 << 10, "16 KiB": 16 << 10}
    targets = {"100 KiB": 1.8, "16 KiB": 2.5}

    def prepare(self):
        plan = self.plan
        self.memory = tempfile.mkdtemp(prefix="forebay-bench-", dir="/dev/shm")
        self.sets = {}
        for label, size in self.sizes.items():
            count = plan.files if size > 50000 else 4 * plan.files
            folder = os.path.join(self.folder, label.replace(" ", ""))
            names = make_files(folder, count, size)
            listing = folder + ".list"
            with open(listing, "w", encoding="ascii") as f:
                f.write("\n".join(names) + "\n")
            twin = os.path.join(self.memory, label.replace(" ", ""))
            shutil.copytree(folder, twin)
            self.sets[label] = (folder, twin, listing)
        settle()
        self.shares = {}
        for label, (folder, _, listing) in self.sets.items():
            share = self.mounts.hold(Share(folder, os.path.join(self.folder, label[:3] + "-share"),
                                           *self.share_args()))
            self.shares[label] = share
            output_of_env(share.command(*self.reader(folder, listing)), share.env)

    def share_args(self):
        return ["--memory", "1500M", "--cache-size", "0", "--metadata-ttl", "1h"]

    def reader(self, folder, listing):
        return [bench_program("reader"), folder, "--list", listing, "--passes", "3"]

    def acquire(self, folder, listing):
        return [bench_program("acquire"), folder, listing]

    def one(self, label, which, processes):
        folder, twin, listing = self.sets[label]
        share = self.shares[label]
        if which == "tmpfs":
            return together(self.reader(twin, listing), processes, share.env)
        words = self.reader if which == "ours" else self.acquire
        return together(share.command(*words(folder, listing)), processes, share.env)

    def round(self, no):
        for label in self.sets:
            for processes in (1, 2):
                best = {}
                for turn in range(TURNS):
                    for which in alternate(no + turn, "tmpfs", "ours", "acquire"):
                        spent = self.one(label, which, processes)
                        best[which] = min(spent, best.get(which, spent))
                for which, spent in best.items():
                    self.see(f"{label} {processes} {which}", spent)

    def finish(self):
        for share in self.shares.values():
            self.mounts.stop(share)
        shutil.rmtree(self.memory, ignore_errors=True)
        super().finish()

    def rows(self):
        rows = []
        for label in self.sizes:
            for processes in (1, 2):
                many = "1 process" if processes == 1 else "2 processes"
                tmpfs = self.seen[f"{label} {processes} tmpfs"]
                for which, what, limit in (("ours", "open+fstat+read+close", self.targets[label]),
                                           ("acquire", "open+acquire+release+close", 10)):
                    ours = self.seen[f"{label} {processes} {which}"]
                    ratio = tmpfs.over(ours)
                    rows.append(report.Row(
                        f"{what} of cached {label} files, {many}, us a file (tmpfs: read)",
                        ours.text(), tmpfs.text(), ratio.text() + "x as fast",
                        f"at least {limit}x", ratio.median >= limit))
        return rows

    def commands(self):
        return [" ".join(["forebay run --source DATA"] + self.share_args() +
                         ["-- bench_reader DATA --list FILE --passes 3"]),
                "bench_reader /dev/shm/DATA --list FILE --passes 3"]


def output_of_env(command, env):
    done = subprocess.run(command, env=env, stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, check=False)
    if done.returncode != 0:
        raise Failed(f"{' '.join(command[:2])}: {(done.stderr or done.stdout).strip()}")
    return done.stdout


class PythonRead(Bench):
    """`open(p, 'rb').read()` against the warm page cache."""

    name = "python"

    def prepare(self):
        self.data = self.folder + "/data"
        self.listing = self.folder + "/list"
        names = make_files(self.data, self.plan.files, self.plan.file_bytes)
        with open(self.listing, "w", encoding="ascii") as f:
            f.write("\n".join(names) + "\n")
        settle()
        self.share = self.mounts.hold(Share(self.data, self.folder + "/share", "--memory", "1G",
                                            "--cache-size", "0", "--metadata-ttl", "1h"))
        for which in ("native", "ours"):
            self.one(which)

    def words(self):
        return [PYTHON, HERE + "/pyread.py", self.data, "--list", self.listing]

    def one(self, which):
        words = self.words() if which == "native" else self.share.command(*self.words())
        return last_object(output_of_env(words, self.share.env))["us_per_file"]

    def round(self, no):
        best = {}
        for turn in range(TURNS):
            for which in alternate(no + turn, "native", "ours"):
                spent = self.one(which)
                best[which] = min(spent, best.get(which, spent))
        for which, spent in best.items():
            self.see(which, spent)

    def finish(self):
        self.mounts.stop(self.share)
        super().finish()

    def rows(self):
        ratio = self.seen["native"].over(self.seen["ours"])
        return [report.Row("Python open(p, 'rb').read() of 100 KiB, us a file (native: ext4, warm)",
                           self.seen["ours"].text(), self.seen["native"].text(),
                           ratio.text() + "x as fast", "at least 1x", ratio.median >= 1)]

    def commands(self):
        return ["forebay run --source DATA -- python3 bench/pyread.py DATA --list FILE"]


KEEP = {"little": "one number kept of each", "all": "all bytes kept as a tensor"}


def loader_row(what, keep, seen, native, least):
    ours, other = seen[f"ours {keep}"], seen[f"native {keep}"]
    ratio = other.over(ours)
    return report.Row(f"torch DataLoader, {what}, {KEEP[keep]}, us a file (native: {native})",
                      ours.text("{:.1f}"), other.text("{:.1f}"), ratio.text() + "x as fast",
                      f"at least {least}x", ratio.median >= least)


class Loader(Bench):
    """torch DataLoader, 4 workers, epoch 2, against warm ext4; and where memory is short."""

    name = "loader"

    def prepare(self):
        plan = self.plan
        self.data = self.folder + "/data"
        self.listing = self.folder + "/list"
        names = make_files(self.data, plan.loader_files, plan.file_bytes)
        with open(self.listing, "w", encoding="ascii") as f:
            f.write("\n".join(names) + "\n")
        settle()
        self.share = self.mounts.hold(Share(self.data, self.folder + "/share", "--memory",
                                            "3G", "--cache-size", "0", "--metadata-ttl", "1h"))

    def words(self, keep):
        return [PYTHON, "-W", "ignore", HERE + "/loader.py", self.data, "--list", self.listing,
                "--epochs", "2", "--workers", "4", "--keep", keep]

    def round(self, no):
        for keep in KEEP:
            for which in alternate(no, "native", "ours"):
                words = self.words(keep)
                if which == "ours":
                    words = self.share.command(*words)
                seconds = last_object(output_of_env(words, self.share.env))["seconds"]
                self.see(f"{which} {keep}", 1e6 * seconds[1] / self.plan.loader_files)

    def finish(self):
        self.mounts.stop(self.share)
        super().finish()

    def rows(self):
        return [loader_row(f"{self.plan.loader_files:,} files of 100 KiB, 4 workers, epoch 2", keep,
                           self.seen, "ext4, warm", 1) for keep in KEEP]

    def commands(self):
        return ["forebay run --source DATA -- python3 bench/loader.py DATA --list FILE --epochs 2 "
                "--workers 4 --keep KEEP"]


class Group:
    """A memory control group (version 1 or 2) to run commands in; None where it cannot be made."""

    def __init__(self, name, limit):
        v1 = "/sys/fs/cgroup/memory"
        base, self.limit_file = (v1, "memory.limit_in_bytes") if os.path.isdir(v1) else (
            "/sys/fs/cgroup", "memory.max")
        self.path = os.path.join(base, f"forebay-bench-{os.getpid()}-{name}")
        os.mkdir(self.path)
        with open(os.path.join(self.path, self.limit_file), "w", encoding="ascii") as f:
            f.write(str(limit))

    def command(self, words):
        join = 'echo $$ > "$0" && exec "$@"'
        return ["sh", "-c", join, os.path.join(self.path, "cgroup.procs"), *words]

    def remove(self):
        until = time.monotonic() + 10
        while os.path.isdir(self.path) and time.monotonic() < until:
            try:
                os.rmdir(self.path)
            except OSError:
                time.sleep(0.1)


class Short(Bench):
    """The same loader where the set is larger than memory: program, page cache and Forebay's DRAM
    all within one limit.

    A run is a training of two epochs, and the second is measured, as above. Every epoch has an
    order of its own, the same for both, drawn from the seed of the run: what is read in one order
    again and again is a scan, of which a page cache keeps nothing. Ours reads the set first, and
    the pages that this leaves are dropped: they would serve the native program beyond its limit,
    and pages that two have read are kept longer. It takes three epochs until the page cache keeps
    the same files.
    """

    name = "short"
    WARM_EPOCHS = 3
    EPOCHS = 2
    PROGRAM_BYTES = 512 << 20  # five processes: 250 MB, and 130 MB of libraries

    def prepare(self):
        plan = self.plan
        self.groups = {}
        self.share = None
        try:
            for which in ("ours", "native"):
                self.groups[which] = Group(which, plan.short_limit)
        except OSError:
            return
        self.data = self.folder + "/data"
        self.listing = self.folder + "/list"
        names = make_files(self.data, plan.short_files, plan.file_bytes)
        with open(self.listing, "w", encoding="ascii") as f:
            f.write("\n".join(names) + "\n")
        settle()
        self.share = self.mounts.hold(Share(self.data, self.folder + "/share", *self.share_args(),
                                            wrap=self.groups["ours"].command))
        for which in self.groups:
            drop_caches()
            self.one(which, "little", 0, self.WARM_EPOCHS)

    def share_args(self):
        limit = self.plan.short_limit
        return ["--memory", str(max(limit * 5 // 8, limit - self.PROGRAM_BYTES)), "--cache-size",
                "8G", "--free-space-ratio", "0.01", "--metadata-ttl", "1h"]

    def one(self, which, keep, seed, epochs):
        words = [PYTHON, "-W", "ignore", HERE + "/loader.py", self.data, "--list", self.listing,
                 "--epochs", str(epochs), "--workers", "4", "--keep", keep, "--seed", str(seed)]
        if which == "ours":
            words = self.share.command(*words)
        out = output_of_env(self.groups[which].command(words), self.share.env)
        return 1e6 * last_object(out)["seconds"][-1] / self.plan.short_files

    def round(self, no):
        if not self.share:
            return
        for step, keep in enumerate(KEEP):
            seed = 1 + no * len(KEEP) + step
            for which in alternate(no, "native", "ours"):
                self.see(f"{which} {keep}", self.one(which, keep, seed, self.EPOCHS))

    def finish(self):
        if self.share:
            self.mounts.stop(self.share)
        super().finish()
        for group in self.groups.values():
            group.remove()

    def rows(self):
        what = (f"{self.plan.short_files:,} files of 100 KiB, 4 workers, epoch 2, "
                f"{self.plan.short_limit >> 20} MiB of memory in all")
        if not self.share:
            return [report.Row("torch DataLoader, " + what, "not measured: needs root and a memory "
                               "control group", "", "", "at least 1.5x", None)]
        return [loader_row(what, keep, self.seen, "ext4", 1.5) for keep in KEEP]

    def commands(self):
        return [" ".join(["forebay run --source DATA"] + self.share_args() +
                         ["-- python3 bench/loader.py DATA --list FILE --epochs 2 --workers 4 "
                          "--keep KEEP --seed RUN"])]


class Strangers(Bench):
    """What the library costs programs that have nothing to do with the data set."""

    name = "strangers"

    def prepare(self):
        build = os.path.dirname(os.path.dirname(bench_program("storm")))
        self.library = os.path.join(build, "src/doors/preload/libforebay_preload.so")
        self.empty = os.path.join(build, "bench/libbench_empty.so")
        self.file = self.folder + "/file"
        with open(self.file, "w", encoding="ascii") as f:
            f.write("nothing\n")

    def storm(self, library):
        env = {**os.environ, "FOREBAY_SOCKET": "/nonexistent/socket",
               "FOREBAY_ROOTS": "/nonexistent/data"}
        if library:
            env["LD_PRELOAD"] = library
        return last_object(output_of_env([bench_program("storm"), self.file, "20000"], env))

    def exec_us(self, library):
        env = {**os.environ, "FB_BENCH_PRELOAD": library}
        return last_object(output_of_env([bench_program("storm"), "--exec", "300"], env))["exec_us"]

    def round(self, no):
        best = {}
        for turn in range(2 * TURNS):
            for which in alternate(no + turn, "native", "ours"):
                seen = self.storm(self.library if which == "ours" else None)
                for key, value in seen.items():
                    best[which, key] = min(value, best.get((which, key), value))
        for (which, key), value in best.items():
            self.see(f"{which} {key}", value)
        for which in alternate(no, "empty", "full"):
            self.see(which, self.exec_us(self.empty if which == "empty" else self.library))

    def rows(self):
        rows = []
        for key, what in (("open_ns", "open+close"), ("stat_ns", "stat"),
                          ("open_here_ns", "open+close by a relative name"),
                          ("stat_here_ns", "stat by a relative name"),
                          ("open_at_ns", "open+close by a directory's descriptor"),
                          ("stat_at_ns", "stat by a directory's descriptor")):
            ours, native = self.seen["ours " + key], self.seen["native " + key]
            ratio = ours.over(native)
            rows.append(report.Row(f"{what} of a file outside, under the library, ns (native)",
                                   ours.text("{:.0f}"), native.text("{:.0f}"),
                                   ratio.text("{:.3f}") + "x", "at most 1.02x",
                                   ratio.median <= 1.02))
        more = Samples(a - b for a, b in zip(self.seen["full"].values, self.seen["empty"].values))
        rows.append(report.Row("exec and exit under the library, us (an empty library)",
                               self.seen["full"].text("{:.0f}"), self.seen["empty"].text("{:.0f}"),
                               more.text("{:+.0f}") + " us", "at most +60 us",
                               more.median <= 60))
        return rows

    def commands(self):
        return ["LD_PRELOAD=libforebay_preload.so bench_storm FILE 20000",
                "FB_BENCH_PRELOAD=libforebay_preload.so bench_storm --exec 300"]


SECTIONS = (Preload, PythonRead, Loader, Short, Strangers)
