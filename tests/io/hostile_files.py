"""Files that a reader of trajectories must end with one line on: hostile_files.py WHOLE.h5 FOLDER [DAMAGED_FOLDER]

Each is WHOLE.h5, a valid trajectory, with one thing made hostile. DAMAGED_FOLDER: damaged HDF5 files of other
people; their objects are linked to where a trajectory has its own. The number of files goes to stdout.
"""
import pathlib
import shutil
import struct
import subprocess
import sys
import zlib

import h5py
import numpy as np

HUGE = 2**63 - 1


def replace(f, path, **creation):
    del f[path]
    return f.create_dataset(path, **creation)


def bomb(f, path, gib):
    """A column of zeros that a thousandth of its size stores."""
    rows = 2**20
    chunk = zlib.compress(bytes(8 * rows), 9)
    count = gib * 2**30 // (8 * rows)
    dataset = replace(f, path, shape=(rows * count,), chunks=(rows,), dtype="<f8", compression="gzip")
    for i in range(count):
        dataset.id.write_direct_chunk((i * rows,), chunk)


def rows(f, count):
    """As many rows as that in every column of /update, all nonsense."""
    for name in list(f["update"]):
        old = f["update"][name]
        shape, dtype = (count,) + old.shape[1:], old.dtype
        replace(f, "update/" + name, data=np.full(shape, 7, dtype), compression="gzip", chunks=(min(count, 65536),) + shape[1:])


def deep(f, depth):
    group = f["eval"]
    for _ in range(depth):
        group = group.create_group("a")


def many(f, count):
    for i in range(count):
        f["update"].create_group(f"g{i}")


changes = {
    "2^63 rows": lambda f: replace(f, "update/lr", shape=(HUGE,), chunks=(512,), dtype="<f8"),
    "2^63 rows of text": lambda f: replace(f, "audit/note", shape=(HUGE,), chunks=(512,), dtype=h5py.string_dtype()),
    "a product that overflows": lambda f: replace(f, "audit/bound", shape=(2**40, 2**40), chunks=(64, 64), dtype="<f8"),
    "2^62 rows in all columns": lambda f: [replace(f, p, shape=(2**62,), chunks=(512,), dtype="<i8") for p in ("update/step", "update/n_targets", "update/loss")],
    "many rows, all zero, none stored": lambda f: [replace(f, p, shape=(130_000,), chunks=(512,), dtype="<i8") for p in ("update/step", "update/n_targets")],
    "a text of 1 GiB that is not there": lambda f: replace(f, "spec/text", shape=(), dtype="S1073741824"),
    "texts of 1 GiB that are not there": lambda f: replace(f, "load/name", shape=(4,), chunks=(1,), dtype="S1073741824"),
    "8 GiB compressed into 8 MiB": lambda f: bomb(f, "update/lr", 8),
    "4 x 1 GiB compressed": lambda f: [bomb(f, p, 1) for p in ("update/lr", "update/clip", "update/loss", "update/grad_norm")],
    "a million rows of nonsense": lambda f: rows(f, 1_000_000),
    "a filter that is missing": lambda f: replace(f, "update/lr", data=np.ones(4), chunks=(4,), compression="lzf"),
    "10,000 groups deep": lambda f: deep(f, 10_000),
    "a group of 20,000 members": lambda f: many(f, 20_000),
    "a group that holds itself": lambda f: f["update"].__setitem__("update", f["update"]),
    "the root as a part": lambda f: (f.pop("eval"), f.__setitem__("eval", f["/"])),
    "a part under another's name": lambda f: (f.pop("eval"), f.__setitem__("eval", f["update"])),
    "a dataset under another's name": lambda f: (f.pop("update/lr"), f.__setitem__("update/lr", f["load/name"])),
    "a loop of soft links": lambda f: (f.pop("eval"), f.__setitem__("eval", h5py.SoftLink("/eval"))),
    "a link to itself as another file": lambda f: (f.pop("eval"), f.__setitem__("eval", h5py.ExternalLink(f.filename, "/eval"))),
    "a link out": lambda f: (f.pop("eval"), f.__setitem__("eval", h5py.ExternalLink("/etc/passwd", "/"))),
    "a snapshot out": lambda f: (f.pop("snapshot"), f.__setitem__("snapshot/3", h5py.ExternalLink("/etc/passwd", "/"))),
    "a snapshot that is the file": lambda f: (f.pop("snapshot"), f.__setitem__("snapshot/3", h5py.ExternalLink(f.filename, "/"))),
    "values in another file": lambda f: replace(f, "update/lr", shape=(4,), dtype="<f8", external=[("/etc/passwd", 0, 32)]),
    "an attribute of 3,000 texts": lambda f: f["provenance"].attrs.__setitem__("hosts", ["x" * 30] * 3000),
}

kinds = {
    "compound": np.zeros(4, [("a", "<i8"), ("b", "<f8")]),
    "an enumeration": np.zeros(4, h5py.enum_dtype({"A": 0, "B": 1}, "i1")),
    "truth": np.zeros(4, bool),
    "short texts": np.zeros(4, "S4"),
    "lists": np.array([np.arange(3)] * 4 + [np.arange(2)], h5py.vlen_dtype("i8"))[:4],
    "opaque": np.zeros(4, "V16"),
    "half precision": np.zeros(4, "<f2"),
    "big-endian": np.zeros(4, ">i2"),
    "complex": np.zeros(4, "<c16"),
    "a table": np.zeros((4, 3), "<i4"),
    "nothing": h5py.Empty("<f8"),
    "one number": np.float64(1.0),
    "many dimensions": np.zeros((1,) * 32, "<f8"),
}


def heap(data, of):
    """Sizes of the first heap of texts, and what its texts announce."""
    at = data.index(b"GCOL")
    size = {"collection": at + 8, "text": at + 16 + 8}[of]
    for value in (0, 1, 2**30, 2**40, 2**63, 2**64 - 1):
        yield value, data[:size] + struct.pack("<Q", value) + data[size + 8 :]


def announced(data, offset):
    for value in (2**20, 2**30, 2**31, 2**32 - 1):
        yield value, data[:offset] + struct.pack("<I", value) + data[offset + 4 :]


def main():
    whole, folder = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    for name, change in changes.items():
        path = folder / f"{name.replace('/', ' ')}.h5"
        shutil.copy(whole, path)
        with h5py.File(path, "r+") as f:
            change(f)
    paths = []
    with h5py.File(whole) as f:
        f.visititems(lambda path, thing: paths.append(path) if isinstance(thing, h5py.Dataset) else None)
        offset = f["spec/text"].id.get_offset()
    for i, path in enumerate(paths):
        # Each dataset becomes three other kinds of thing; together every kind comes up often.
        for k in range(3):
            name = list(kinds)[(3 * i + k) % len(kinds)]
            copy = folder / f"{path.replace('/', '_')} as {name}.h5"
            shutil.copy(whole, copy)
            with h5py.File(copy, "r+") as f:
                del f[path]
                f[path] = kinds[name]
    data = whole.read_bytes()
    for what, variants in (("heap", heap(data, "collection")), ("heap text", heap(data, "text")), ("text", announced(data, offset))):
        for value, bytes_ in variants:
            (folder / f"{what} {value}.h5").write_bytes(bytes_)
    if len(sys.argv) > 3 and sys.argv[3]:
        for damaged in sorted(pathlib.Path(sys.argv[3]).glob("*.h*")):
            # In a process of its own: HDF5 may crash on them.
            subprocess.run([sys.executable, __file__, "link", str(damaged), str(folder)], stderr=subprocess.DEVNULL)
    print(len(list(folder.glob("*.h5"))))


def link(damaged, to):
    """The damaged file's objects, one after the other, where a trajectory has groups and datasets."""
    places = [b"spec", b"update", b"eval", b"load/name", b"update/loss", b"adapter/names", b"provenance"]
    for i in range(6):
        copy = to / f"{damaged.stem} {i}.h5"
        shutil.copy(damaged, copy)
        copy.chmod(0o600)
        try:
            with h5py.File(copy, "r+") as f:
                names = list(f.keys())
                if i >= len(names):
                    raise KeyError
                f.attrs["format"], f.attrs["format_version"] = "tandem-trajectory", np.int64(1)
                f.attrs["stack"], f.attrs["complete"], f.attrs["written_at"] = "native", np.int64(1), "2025-01-01T00:00:00Z"
                for place in places:
                    try:
                        if b"/" in place:
                            f.require_group(place.split(b"/")[0].decode())
                        f.id.links.create_hard(place, f.id, names[i].encode())
                    except Exception:
                        pass
        except Exception:
            copy.unlink()


if __name__ == "__main__":
    if sys.argv[1] == "link":
        link(pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3]))
    else:
        main()
