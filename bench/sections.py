"""What the sections of bench/run have in common."""
import os
import shutil
import time

from measure import Samples


class Bench:
    """A section: prepare() once, round() as often as the plan says, then rows()."""

    name = ""
    rounds_max = 5  # of a section whose rounds take long, fewer

    def __init__(self, plan, folder, mounts):
        self.plan = plan
        self.folder = os.path.join(folder, self.name)
        self.mounts = mounts
        self.seen = {}
        os.makedirs(self.folder)

    def see(self, name, value):
        self.seen.setdefault(name, Samples()).add(value)

    def prepare(self):
        pass

    def finish(self):
        shutil.rmtree(self.folder, ignore_errors=True)


def alternate(no, *names):
    """Who goes first changes from round to round."""
    start = no % len(names)
    return names[start:] + names[:start]


def settle():
    """Files younger than two seconds are not kept by the cache."""
    time.sleep(2.5)
