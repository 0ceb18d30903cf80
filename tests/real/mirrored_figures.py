#!/usr/bin/python3
"""What the two stacks of one run say: losses of the untrained model, audits, and how far the trajectories part.

    mirrored_figures.py RUN      a folder with native.h5 and mirror.h5
"""

import sys
from pathlib import Path

import h5py
import numpy as np

run = Path(sys.argv[1])
native, mirror = h5py.File(run / "native.h5"), h5py.File(run / "mirror.h5")
a, b = native["eval/loss"][:], mirror["eval/loss"][:]
print(f"untrained held-out loss: native {a[0]:.6f}, mirror {b[0]:.6f}, difference {a[0] - b[0]:.2e} nat")
percent = 100 * (a - b) / b
print(f"{len(a) - 1} evaluations after training began: native {a[-1]:.6f} at the end, mirror {b[-1]:.6f}")
print(f"held-out difference: mean {np.abs(percent).mean():.2e} %, largest {np.abs(percent).max():.2e} %")
norms = np.abs(native["update/grad_norm"][:] / mirror["update/grad_norm"][:] - 1)
losses = np.abs(native["update/loss"][:] / mirror["update/loss"][:] - 1)
print(f"{len(norms)} updates: loss within {losses.max():.2e}, gradient norm within {norms.max():.2e} (relative)")
audit = native["audit"]
d, s, bound = audit["relative_error"][:], audit["projection"][:], audit["bound"][:]
print(f"{len(d)} audits, verdicts {audit['verdict'][:].tolist()}: largest d {np.nanmax(d):.2e}, |s-1| "
      f"{np.nanmax(np.abs(s - 1)):.2e}, d at most {np.nanmax(d / bound):.2f} of its threshold; "
      f"AdamW's step by component within {np.nanmax(audit['optimizer_error'][:]):.2e}")
facts = native["provenance"].attrs
for name in sorted(facts):
    if name.startswith("mirror_"):
        print(f"  {name} {facts[name]}")
