"""Epochs after the page cache was dropped: from our NVMe tier, and natively. Two sections.

The first reads in an order that nobody can know, with no DRAM tier at all and after a restart: the
least that the tier can do. The second reads in the orders of a training: torch's shuffles, each of
a seed of its own, that nobody is told; the daemon has to find them out.
"""
import os

import report
from measure import can_drop_caches, drop_caches, epoch, make_files
from mounts import Failed
from sections import Bench, alternate, settle

TURNS = 3


class Cold(Bench):
    """The same after the page cache was dropped: from our NVMe tier, and natively; the best of
    three in turns, for others use the disk, too. First without DRAM, so that every file comes from
    the disk when it is asked for. Then with memory for the set, and the daemon started anew before
    each epoch: DRAM is empty, what is known of files has to be asked for again, and what is on the
    disk comes up while it is read; the best of two."""

    name = "cold"
    readers = (1, 4, 16)
    restarts = 2

    def prepare(self):
        plan = self.plan
        self.data = self.folder + "/data"
        self.listing = self.folder + "/list"
        if not can_drop_caches():
            return
        names = make_files(self.data, plan.files, plan.file_bytes)
        with open(self.listing, "w", encoding="ascii") as f:
            f.write("\n".join(names) + "\n")
        settle()
        self.mount = self.mounts.add("cold", self.data, *self.mount_args())
        tiers = [tier["name"] for tier in self.mount.status()["tiers"]]
        if tiers != ["nvme"]:
            raise Failed(f"the cold bench wants an NVMe tier alone, not {tiers}")
        epoch(self.mount.point, self.listing, 1)
        self.again = self.mounts.add("again", self.data, *self.mount_args("2G"))
        epoch(self.again.point, self.listing, 1)

    def mount_args(self, memory="192M"):
        # So little memory that no DRAM tier is left.
        return ["--consistency", "static", "--memory", memory, "--segment-size", "16M",
                "--cache-size", "2G", "--free-space-ratio", "0.01", "--metadata-ttl", "1h"]

    def round(self, no):
        if not can_drop_caches():
            return
        points = {"native": self.data, "ours": self.mount.point}
        for readers in self.readers:
            best = {}
            for turn in range(TURNS):
                for name in alternate(no + turn, *points):
                    drop_caches()
                    before = self.mount.source_bytes()
                    spent = epoch(points[name], self.listing, 200 + no, readers)
                    best[name] = min(spent, best.get(name, spent))
                    if name == "ours" and self.mount.source_bytes() != before:
                        raise Failed("a cold epoch through the mount went to the source")
            for name, spent in best.items():
                self.see(f"{name}{readers}", spent)
            self.round_again(no, readers)

    def round_again(self, no, readers):
        best = {}
        for turn in range(self.restarts):
            for name in alternate(no + turn, "cold", "again"):
                if name == "again":
                    self.again.restart()
                drop_caches()
                spent = epoch(self.again.point if name == "again" else self.data, self.listing,
                              300 + no, readers)
                best[name] = min(spent, best.get(name, spent))
                if name == "again" and self.again.source_bytes() != 0:
                    raise Failed("an epoch after a restart went to the source")
        for name, spent in best.items():
            self.see(f"{name}{readers}", spent)

    def finish(self):
        if can_drop_caches():
            self.mounts.stop(self.again)
            self.mounts.stop(self.mount)
        super().finish()

    def rows(self):
        if not can_drop_caches():
            return [report.Row("cold epoch through the mount", "not measured: only root can drop "
                               "the page cache", "", "", "faster than native", None)]
        rows = []
        for readers in self.readers:
            ours, native = self.seen[f"ours{readers}"], self.seen[f"native{readers}"]
            ratio = native.over(ours)
            rows.append(report.Row(
                f"cold epoch served from NVMe, no DRAM, an order nobody knows, {readers} "
                f"reader{'s' if readers > 1 else ''}, us a file (native: ext4)",
                ours.text("{:.1f}"), native.text("{:.1f}"), ratio.text() + "x as fast",
                "faster" if readers == 1 else "", ratio.median > 1 if readers == 1 else None))
        for readers in self.readers:
            ours, native = self.seen[f"again{readers}"], self.seen[f"cold{readers}"]
            rows.append(report.Row(
                f"the first epoch after a restart, with memory for the set, {readers} "
                f"reader{'s' if readers > 1 else ''}, us a file (native: ext4, cold)",
                ours.text("{:.1f}"), native.text("{:.1f}"), native.over(ours).text() + "x as fast",
                "", None))
        return rows

    def commands(self):
        return [" ".join(["forebay mount DATA MNT"] + self.mount_args()),
                " ".join(["forebay umount MNT; forebay mount DATA MNT"] + self.mount_args("2G")),
                "sync; echo 3 > /proc/sys/vm/drop_caches",
                "bench_reader MNT --list FILE --seed ROUND --threads N"]


class Shuffled(Bench):
    """A shuffled epoch as a program's own DataLoader(shuffle=True) has it, of a set many times the
    DRAM tier, cold: from our NVMe tier, and natively; and the same files in an order of a generator
    that the daemon does not know, through a mount of its own. Each epoch has another seed, which the
    daemon is not told. The page cache is dropped before; what is left in DRAM stays there.
    What the daemon reads from the disk is counted, and that it reads nothing from the source."""

    name = "shuffled"
    orders = ("torch", "own")
    from_disk = 0.8  # of the set's bytes, at least

    def prepare(self):
        if not can_drop_caches():
            return
        plan = self.plan
        self.data = self.folder + "/data"
        self.listing = self.folder + "/list"
        self.memory = str(max(plan.loader_files * plan.file_bytes // 4, 256 << 20))
        names = make_files(self.data, plan.loader_files, plan.file_bytes)
        with open(self.listing, "w", encoding="ascii") as f:
            f.write("\n".join(names) + "\n")
        settle()
        self.live = {}
        for order in self.orders:
            self.live[order] = self.mounts.add("shuffled-" + order, self.data, *self.mount_args())
            epoch(self.live[order].point, self.listing, 1, 1, order)
        self.seed = 1000

    def mount_args(self):
        return ["--consistency", "static", "--memory", self.memory, "--segment-size", "16M",
                "--cache-size", "4G", "--free-space-ratio", "0.01", "--metadata-ttl", "1h"]

    def round(self, no):
        if not can_drop_caches():
            return
        for order in self.orders:
            self.seed += 1
            for name in alternate(no, "native", "ours"):
                mount = self.live[order]
                before = mount.source_bytes(), mount.disk_bytes()
                drop_caches()
                self.see(name + order, epoch(mount.point if name == "ours" else self.data,
                                             self.listing, self.seed, 1, order))
                if name == "ours":
                    self.check(order, *before)

    def check(self, order, source_bytes, disk_bytes):
        mount = self.live[order]
        if mount.source_bytes() != source_bytes:
            raise Failed("a cold epoch through the mount went to the source")
        size = self.plan.loader_files * self.plan.file_bytes
        share = (mount.disk_bytes() - disk_bytes) / size
        if share < self.from_disk:
            raise Failed(f"only {share:.0%} of a cold epoch came from the disk")
        self.see("share" + order, share)

    def finish(self):
        if can_drop_caches():
            for mount in self.live.values():
                self.mounts.stop(mount)
        super().finish()

    def rows(self):
        if not can_drop_caches():
            return [report.Row("cold shuffled epoch through the mount", "not measured: only root "
                               "can drop the page cache", "", "", "faster than native", None)]
        rows = []
        for order, what in (("torch", "torch's shuffle"), ("own", "an order nobody knows")):
            ours, native = self.seen["ours" + order], self.seen["native" + order]
            ratio = native.over(ours)
            rows.append(report.Row(
                f"cold epoch of a set much larger than DRAM, {what}, "
                f"{self.seen['share' + order].text('{:.0f}', 100)}% served from NVMe, 1 reader, "
                "us a file (native: ext4)",
                ours.text("{:.1f}"), native.text("{:.1f}"), ratio.text() + "x as fast",
                "faster" if order == "torch" else "",
                ratio.median > 1 if order == "torch" else None))
        return rows

    def commands(self):
        return [" ".join(["forebay mount DATA MNT"] + self.mount_args()),
                "sync; echo 3 > /proc/sys/vm/drop_caches",
                "bench_reader MNT --list FILE --seed SEED --order ORDER --threads 1"]


SECTIONS = (Cold, Shuffled)
