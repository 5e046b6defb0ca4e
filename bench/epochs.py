"""Sections of bench/run about known epochs: plans, and seeds found by themselves."""
import json

import report
from measure import output_of, program
from mounts import forebay_binary
from sections import Bench

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
        trials, streams = (20, 7) if self.plan.rounds == 1 else (200, 210)
        return ["bench", "seeds", "--trials", trials, "--streams", streams, "--random", no + 1]

    def round(self, no):
        words = [str(arg) for arg in self.args(no)]
        seen = json.loads(output_of([forebay_binary(), *words, "--json"]))
        for key in ("trials", "found", "wrong", "streams", "believed"):
            self.see(key, seen[key])
        self.see("ms", 1e3 * seen["seconds"] / seen["trials"])
        for level, speed in seen["seeds_per_cpu_second"].items():
            self.see(level, speed)

    def total(self, key):
        return sum(self.seen[key].values)

    def rows(self):
        found, trials = self.total("found"), self.total("trials")
        wrong = self.total("wrong") + self.total("believed")
        streams = self.total("streams")
        speeds = ", ".join(f"{level} {self.seen[level].text('{:.1f}', 1e-6)}"
                           for level in ("plain", "avx2", "avx512"))
        return [
            report.Row(f"seeds found within 64 accesses, of {trials:,}", f"{found / trials:.1%}",
                       "", "", "at least 99%", found >= 0.99 * trials),
            report.Row(f"seeds believed wrongly, there and in {streams:,} other streams",
                       f"{wrong}", "", "", "none", wrong == 0),
            report.Row("a search, ms", self.seen["ms"].text("{:.0f}"), "", "", "", None),
            report.Row("million seeds a second of one core", speeds, "", "", "", None),
        ]

    def commands(self):
        return [" ".join(["forebay"] + [str(arg) for arg in self.args(0)])]


SECTIONS = (Plans, Seeds)
