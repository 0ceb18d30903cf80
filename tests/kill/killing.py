"""What the tests that kill ranks share: rows, the processes of a run, what is looked at in the files of a killed one."""
import hashlib
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile

try:
    import h5py
except ImportError:
    print("skipped: this Python has no h5py")
    sys.exit(77)


def write_rows(path, n, seed):
    draw = random.Random(seed)
    with open(path, "w") as out:
        for _ in range(n):
            length = draw.randint(8, 40)
            start = draw.randrange(256)
            ids = [(start + 3 * p) % 256 for p in range(length)]
            targets = [int(p >= length // 2) for p in range(length)]
            out.write(json.dumps({"ids": ids, "targets": targets}) + "\n")


def ranks_of(run):
    """{rank: process id} of the ranks that write to this run folder, a process without a launcher being rank 0."""
    found = {}
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
            if not words[0].endswith(b"/tandem") or str(run).encode() not in words:
                continue
            environment = (entry / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        rank = [word.split(b"=")[1] for word in environment if word.startswith(b"OMPI_COMM_WORLD_RANK=")]
        found[int(rank[0]) if rank else 0] = int(entry.name)
    return found


def send(pid, what):
    try:
        os.kill(pid, what)
    except ProcessLookupError:
        pass


def require_opens(path):
    dump = subprocess.run(["h5dump", str(path)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    assert dump.returncode == 0 and not dump.stderr, f"h5dump {path}: {dump.stderr}"


def require_valid(tandem, path):
    said = subprocess.run([tandem, "inspect", "--validate", str(path)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True)
    assert said.returncode == 0, f"inspect --validate {path}: {said.stdout}"


def require_whole(checkpoint):
    """Every file of a checkpoint is as checkpoint.json says, and there is no other."""
    mark = json.loads((checkpoint / "checkpoint.json").read_text())
    for name, about in mark["files"].items():
        content = (checkpoint / name).read_bytes()
        assert len(content) == about["bytes"] and hashlib.sha256(content).hexdigest() == about["sha256"], checkpoint / name
    there = {str(file.relative_to(checkpoint)) for file in checkpoint.rglob("*") if file.is_file()}
    assert there == set(mark["files"]) | {"checkpoint.json"}, f"{checkpoint}: {there}"


def temporary(name):
    return ".tandem-" in name


def require_files_whole(tandem, run):
    """All that has a final name in the folder of a killed run."""
    for path in sorted(run.rglob("*.h5")):
        if not any(temporary(part) for part in path.relative_to(run).parts):
            require_opens(path)
    for path in run.glob("*.h5"):
        require_valid(tandem, path)
    for checkpoint in (run / "checkpoints").glob("*"):
        if not checkpoint.name.isdigit():
            continue
        require_whole(checkpoint)
        for path in checkpoint.glob("*.h5"):  # its snapshots lie beside where it would be put back
            with tempfile.TemporaryDirectory(prefix="tandem-kill-") as place:
                os.symlink(run / (path.stem + ".snapshots"), os.path.join(place, path.stem + ".snapshots"))
                require_valid(tandem, shutil.copy(path, place))


def may_differ(path):
    """Times, places and how it was run."""
    return path.startswith(("/provenance@", "/execution/", "/memory/", "/slow/")) or path.endswith("/seconds") or path == "/@written_at"


def content(path):
    """{dataset, or GROUP@ATTRIBUTE: its bits} of an HDF5 file."""
    found = {}

    def bits(value):
        return value.tobytes() if hasattr(value, "tobytes") and value.dtype != object else repr(value)

    def visit(name, thing):
        name = "/" + name
        for key in thing.attrs:
            if key != "DIMENSION_LABELS":
                found[f"{name}@{key}"] = bits(thing.attrs[key])
        if isinstance(thing, h5py.Dataset):
            value = thing[()]
            found[name] = (str(thing.dtype), thing.shape, repr(value.tolist()) if thing.dtype == object and thing.shape
                           else bits(value))

    with h5py.File(path, "r") as file:
        visit("", file)
        file.visititems(visit)
    return {name: value for name, value in found.items() if not may_differ(name)}


def differences(a, b):
    """What two finished run folders hold that is not the same."""

    def files(run):
        names = {str(file.relative_to(run)) for file in run.rglob("*") if file.is_file()}
        return {name for name in names if not name.startswith("checkpoints/") and name not in ("run.log", "execution.txt")}

    found = [f"{name} is in one alone" for name in files(a) ^ files(b)]
    for name in sorted(files(a) & files(b)):
        if not name.endswith(".h5"):
            if (a / name).read_bytes() != (b / name).read_bytes():
                found.append(f"{name} differs")
            continue
        one, other = content(a / name), content(b / name)
        found += [f"{name}: {path}" for path in sorted(one.keys() | other.keys()) if one.get(path) != other.get(path)]
    return found
