"""inotify: what happens in a run's folder, as it happens."""
import ctypes
import os
import select
import struct
import time

CREATE, MOVED_FROM, MOVED_TO, MODIFY = 0x100, 0x40, 0x80, 0x2

libc = ctypes.CDLL(None, use_errno=True)


class Watch:
    """Names of files and folders that appear under a run's folder, relative to it, and "run.log" whenever it is written
    to. The folder must exist; folders in it are watched from when they appear."""

    def __init__(self, run):
        self.run = run
        self.file = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        assert self.file >= 0, os.strerror(ctypes.get_errno())
        self.folders = {}
        self.early = []  # what stood in a folder already when its watch began
        self.add("")

    def add(self, name):
        number = libc.inotify_add_watch(self.file, os.fsencode(self.run / name), CREATE | MOVED_FROM | MOVED_TO | MODIFY)
        if number < 0:
            return  # it is gone again
        self.folders[number] = name
        for entry in os.listdir(self.run / name):
            self.seen(os.path.join(name, entry) if name else entry)

    def seen(self, name):
        self.early.append(name)
        if name in ("checkpoints", "native.snapshots", "mirror.snapshots"):
            self.add(name)

    def names(self, seconds):
        """Those of the next events; none where nothing happens in that time."""
        if not self.early and select.select([self.file], [], [], max(0.0, seconds))[0]:
            data = os.read(self.file, 65536)
            at = 0
            while at < len(data):
                number, mask, _, length = struct.unpack_from("iIII", data, at)
                name = data[at + 16 : at + 16 + length].rstrip(b"\0").decode()
                at += 16 + length
                if number in self.folders and name and (not mask & MODIFY or name == "run.log"):
                    folder = self.folders[number]
                    self.seen(os.path.join(folder, name) if folder else name)
        found, self.early = self.early, []
        return found

    def close(self):
        os.close(self.file)
