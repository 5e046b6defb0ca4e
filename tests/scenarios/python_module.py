"""tests/scenarios/python_module.py make|use|direct DIR - what python_module runs in Python."""
import errno
import gc
import io
import json
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import traceback
import warnings

import numpy
from PIL import Image

try:
    import torch
    import torch.utils.data

    warnings.filterwarnings("ignore", "The given buffer is not writable")
    warnings.filterwarnings("ignore", "This DataLoader will create")
except ImportError:
    torch = None

import forebay

SMALL = 100_000
LARGE = 3_000_000
SAMPLES = 64
SHARED_WAIT_S = 60


def bytes_of(seed, size):
    return numpy.random.default_rng(seed).bytes(size)


def make(folder):
    for name, seed, size in (("small", 1, SMALL), ("large", 2, LARGE), ("empty", 3, 0)):
        with open(os.path.join(folder, name), "wb") as f:
            f.write(bytes_of(seed, size))
    os.mkdir(os.path.join(folder, "samples"))
    for i in range(SAMPLES):
        with open(os.path.join(folder, "samples", str(i)), "wb") as f:
            f.write(bytes_of(100 + i, 20_000))
    numpy.save(os.path.join(folder, "array.npy"), numpy.arange(10_000, dtype=numpy.int32))
    Image.new("RGB", (64, 48), (200, 100, 50)).save(os.path.join(folder, "image.png"))
    with open(os.path.join(folder, "text"), "w", encoding="ascii") as f:
        f.writelines(f"line {i}\n" for i in range(2000))
    with open(os.path.join(folder, "pickled"), "wb") as f:
        pickle.dump({"a": [1, 2, 3]}, f, protocol=0)
    os.symlink("small", os.path.join(folder, "link"))


def raises(kind, call, *args):
    try:
        call(*args)
    except kind as error:
        return error
    raise AssertionError(f"{call} did not raise {kind}")


class Tests:
    """Every method that is not private is a test."""

    def __init__(self, folder, cached):
        self._folder = folder
        self._cached = cached

    def _path(self, name):
        return os.path.join(self._folder, name)

    def _shared_view(self, name):
        """A view that is not a copy; the cache may still be taking the file in."""
        end = time.monotonic() + SHARED_WAIT_S
        while True:
            with forebay.open(self._path(name)) as f:
                view = f.view()
            if not self._cached or view.is_zero_copy or time.monotonic() > end:
                return view
            time.sleep(0.05)

    # A file object

    def reading(self):
        with forebay.open(self._path("large")) as f:
            data = bytes_of(2, LARGE)
            assert f.is_cached == self._cached, f
            assert (f.block_size > 0) == self._cached
            assert f.size == LARGE
            assert f.name == self._path("large")
            assert f.read() == data and f.read() == b"" and f.tell() == LARGE
            assert f.seek(1000) == 1000 and f.read(10) == data[1000:1010] and f.tell() == 1010
            assert f.seek(-10, os.SEEK_END) == LARGE - 10 and f.read(100) == data[-10:]
            assert f.seek(-20, os.SEEK_CUR) == LARGE - 20
            assert f.read() == data[-20:]
            assert f.pread(70_000, 1_000_000) == data[1_000_000:1_070_000]
            assert f.pread(10, LARGE + 5) == b"" and f.pread(10 * LARGE, 0) == data
            buffer = bytearray(100)
            f.seek(5)
            assert f.readinto(buffer) == 100 and buffer == data[5:105] and f.tell() == 105
            assert raises(OSError, f.pread, 1, -1).errno == errno.EINVAL
            raises(ValueError, f.pread, -1, 0)
            raises(ValueError, f.seek, -1)
            raises(io.UnsupportedOperation, f.fileno)
            raises(io.UnsupportedOperation, f.write, b"x")
            assert f.readable() and f.seekable() and not f.writable() and f.mode == "rb"
            assert isinstance(f, io.RawIOBase)
        assert f.closed
        for call in (f.read, f.tell, f.stat, f.view):
            raises(ValueError, call)
        assert forebay.read(self._path("large")) == data
        assert forebay.read(self._path("link").encode()) == bytes_of(1, SMALL)
        assert forebay.read(self._path("empty")) == b""
        for name in os.listdir(self._folder):
            if os.path.isfile(self._path(name)):
                with open(self._path(name), "rb") as f:
                    assert forebay.read(self._path(name)) == f.read(), name

    def errors(self):
        error = raises(FileNotFoundError, forebay.open, self._path("none"))
        assert error.filename == self._path("none")
        raises(IsADirectoryError, forebay.open, self._folder)
        raises(FileNotFoundError, forebay.read, self._path("none"))
        raises(TypeError, forebay.open, 5)
        raises(ValueError, forebay.open, "a\0b")
        raises(OSError, forebay.connect, "x" * 500)

    def attributes(self):
        with forebay.open(self._path("small")) as f:
            is_, expected = f.stat(), os.stat(self._path("small"))
        names = "mode ino dev nlink uid gid size mtime_ns ctime_ns mtime".split()
        for name in names:
            name = "st_" + name
            assert getattr(is_, name) == getattr(expected, name), name

    def lines(self):
        with open(self._path("text"), "rb") as f:
            lines = f.readlines()
        with forebay.open(self._path("text")) as f:
            assert f.readlines() == lines
            f.seek(0)
            assert list(f) == lines
            f.seek(0)
            assert f.readline(3) == b"lin" and f.readline() == b"e 0\n"
            f.seek(0)
            assert list(io.BufferedReader(f)) == lines
        with io.TextIOWrapper(io.BufferedReader(forebay.open(self._path("text")))) as f:
            assert f.readline() == "line 0\n"

    def libraries(self):
        with forebay.open(self._path("array.npy")) as f:
            assert (numpy.load(f) == numpy.arange(10_000)).all()
        with forebay.open(self._path("image.png")) as f:
            image = Image.open(f)
            assert image.size == (64, 48) and image.getpixel((3, 3)) == (200, 100, 50)
        with forebay.open(self._path("pickled")) as f:
            assert pickle.load(f) == {"a": [1, 2, 3]}

    # Views

    def views(self):
        data = bytes_of(2, LARGE)
        with forebay.open(self._path("large")) as f:
            view = f.view(10, 1000)
            whole = f.view()
            end = f.view(LARGE - 5)
            nothing = f.view(LARGE)
        assert bytes(view) == data[10:1010] and len(view) == 1000
        assert memoryview(whole) == data and not whole.is_zero_copy
        assert bytes(end) == data[-5:] and bytes(nothing) == b""
        assert memoryview(view).readonly
        raises(TypeError, memoryview(view).__setitem__, 0, 1)
        array = numpy.frombuffer(view, dtype=numpy.uint8)
        assert not array.flags.writeable
        raises(BufferError, view.release)
        del view
        gc.collect()
        assert array.tobytes() == data[10:1010]
        with forebay.open(self._path("small")) as f, f.view() as view:
            assert bytes(view) == bytes_of(1, SMALL)
        raises(ValueError, bytes, view)
        view.release()
        raises(TypeError, forebay.View)

    def zero_copy(self):
        if not self._cached:
            return
        view = self._shared_view("small")
        assert view.is_zero_copy
        array = numpy.frombuffer(view, dtype=numpy.uint8)
        address = array.ctypes.data
        with open("/proc/self/maps", encoding="ascii") as f:
            for line in f:
                begin, end = (int(n, 16) for n in line.split()[0].split("-"))
                if begin <= address < end:
                    assert "/memfd:" in line and line.split()[1] == "r--s", line
                    break
            else:
                raise AssertionError("no mapping has the view's address")
        del view
        gc.collect()
        assert subprocess.run([os.environ["FOREBAY"], "evict", self._path("small")],
                              capture_output=True, check=False).returncode == 0
        assert array.tobytes() == bytes_of(1, SMALL)

    def too_many_views(self):
        views = []
        for i in range(SAMPLES):
            with forebay.open(self._path(f"samples/{i}")) as f:
                views.append(f.view())
        for i, view in enumerate(views):
            assert bytes(view) == bytes_of(100 + i, 20_000)

    def tensors(self):
        if not torch:
            print("python_module: no torch here", file=sys.stderr)
            return
        view = self._shared_view("samples/1")
        tensor = torch.frombuffer(view, dtype=torch.uint8)
        if self._cached:
            assert view.is_zero_copy
            assert tensor.data_ptr() == numpy.frombuffer(view, dtype=numpy.uint8).ctypes.data
        del view
        assert tensor.numpy().tobytes() == bytes_of(101, 20_000)
        loader = torch.utils.data.DataLoader(Samples(self._folder), batch_size=8, num_workers=3)
        for _ in range(3):
            sums = torch.cat(list(loader))
            assert sums.tolist() == [sum(bytes_of(100 + i, 20_000)) for i in range(SAMPLES)]

    # Threads and processes

    def threads(self):
        data = bytes_of(2, LARGE)
        wrong = []
        with forebay.open(self._path("large")) as f:
            def work(seed):
                random = numpy.random.default_rng(seed)
                for _ in range(200):
                    at, size = int(random.integers(LARGE)), int(random.integers(100_000))
                    if f.pread(size, at) != data[at : at + size]:
                        wrong.append(at)
                    if bytes(f.view(at, size)) != data[at : at + size]:
                        wrong.append(at)

            workers = [threading.Thread(target=work, args=(i,)) for i in range(8)]
            for worker in workers:
                worker.start()
            for worker in workers:
                worker.join()
        assert not wrong

    def closing_while_reading(self):
        for _ in range(20):
            f = forebay.open(self._path("large"))

            def work():
                try:
                    while True:
                        assert len(f.pread(LARGE, 0)) == LARGE
                except ValueError:
                    pass

            worker = threading.Thread(target=work)
            worker.start()
            time.sleep(0.002)
            f.close()
            worker.join()

    def forks(self):
        view = self._shared_view("samples/2")
        f = forebay.open(self._path("large"))
        f.read(10)
        for _ in range(5):
            pid = os.fork()
            if pid == 0:
                status = 1
                try:
                    assert f.read() == bytes_of(2, LARGE)[10:]
                    assert forebay.read(self._path("small")) == bytes_of(1, SMALL)
                    own = self._shared_view("samples/3")
                    assert bytes(own) == bytes_of(103, 20_000)
                    del own, view, f
                    gc.collect()
                    status = 0
                except BaseException:
                    traceback.print_exc()
                finally:
                    os._exit(status)
            assert os.waitpid(pid, 0)[1] == 0
        assert bytes(view) == bytes_of(102, 20_000)
        f.seek(0)
        assert f.read() == bytes_of(2, LARGE)

    def connections(self):
        connection = forebay.connect(os.environ.get("FOREBAY_SOCKET"))
        connection = pickle.loads(pickle.dumps(connection))
        with connection.open(self._path("small")) as f:
            assert f.is_cached == self._cached
            del connection
            assert f.read() == bytes_of(1, SMALL)
        with forebay.connect("/nowhere").open(self._path("small")) as f:
            assert not f.is_cached and f.read() == bytes_of(1, SMALL)

    # The end

    def zz_the_daemon_is_killed(self):
        if not self._cached:
            return
        view = self._shared_view("small")
        f = forebay.open(self._path("large"))
        status = subprocess.run([os.environ["FOREBAY"], "status", "--json"], capture_output=True,
                                check=True)
        for daemon in json.loads(status.stdout)["daemons"]:
            os.kill(daemon["pid"], signal.SIGKILL)
        begin = time.monotonic()
        assert f.read() == bytes_of(2, LARGE)
        assert forebay.read(self._path("samples/5")) == bytes_of(105, 20_000)
        assert time.monotonic() - begin < 30
        assert bytes(view) == bytes_of(1, SMALL)


if torch:
    class Samples(torch.utils.data.Dataset):
        """Files as sums of their bytes, read in a worker's process."""

        def __init__(self, folder):
            self.folder = folder

        def __len__(self):
            return SAMPLES

        def __getitem__(self, i):
            with forebay.open(os.path.join(self.folder, "samples", str(i))) as f:
                return torch.frombuffer(f.view(), dtype=torch.uint8).sum(dtype=torch.int64)


def main():
    what, folder = sys.argv[1:]
    if what == "make":
        make(folder)
        return 0
    tests = Tests(folder, what == "use")
    failed = 0
    for name in sorted(n for n in dir(tests) if not n.startswith("_")):
        begin = time.monotonic()
        try:
            getattr(tests, name)()
            print(f"{what}: {name}: {time.monotonic() - begin:.2f} s", flush=True)
        except Exception:
            failed += 1
            print(f"{what}: {name}: FAILED", file=sys.stderr)
            traceback.print_exc()
    return 1 if failed else 0


sys.exit(main())
