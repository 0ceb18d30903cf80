#!/usr/bin/env python3
"""A run that Slurm's own time limit cuts: allocations of one minute, warned by --signal 30 s before, until done.

    tests/slurm/two_nodes.py /usr/bin/python3 tests/soak/slurm_time_limit.py TANDEM

Prints what Slurm counted. Exit code 1 where the run's adapter has not the bits of the run without Slurm.
"""
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "slurm"))
import slurm_test  # noqa: E402

slurm_test.TANDEM = pathlib.Path(sys.argv[1]).resolve()
slurm_test.Slurm.setUpClass()
slurm_test.os.environ["TANDEM"] = str(slurm_test.TANDEM)
words = slurm_test.SHORT[:4] + ["--train.updates", sys.argv[2] if len(sys.argv) > 2 else "6000", "--eval.every", "2000"]
begin = time.monotonic()
plain = slurm_test.run(slurm_test.TANDEM, "train", *words, "--run.out", "unbroken", seconds=1200)
assert plain.returncode == 0, plain.stderr
print(f"without Slurm: {time.monotonic() - begin:.0f} s", flush=True)
job = slurm_test.submit("--time=1", "--signal=B:USR1@30", slurm_test.ROOT / "slurm/train.sbatch", *words, "--run.out",
                        "limited")
slurm_test.wait_for(lambda: slurm_test.job(job)["JobState"] in ("COMPLETED", "FAILED", "TIMEOUT", "CANCELLED"), 1800,
                    lambda: slurm_test.output_of(job))
print("job", slurm_test.job(job)["JobState"], "Restarts", slurm_test.job(job)["Restarts"])
print("\n".join(line for line in slurm_test.output_of(job).splitlines()
                if any(word in line for word in ("resumed from", "stopped by", "queue", "trained", "DUE TO"))))
adapters = [(slurm_test.SHARED / folder / "adapter/adapter_model.safetensors").read_bytes()
            for folder in ("limited", "unbroken")]
print("adapter: the same bits" if adapters[0] == adapters[1] else "adapter: DIFFERS")
sys.exit(0 if adapters[0] == adapters[1] else 1)
