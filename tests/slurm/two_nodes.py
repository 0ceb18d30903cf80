#!/usr/bin/env python3
"""A throw-away Slurm of two nodes on this machine, for one command:

    two_nodes.py [--without-slurm] COMMAND [ARGUMENTS]

runs COMMAND as root beside munged, slurmctld and two slurmd ("node1", "node2"), each with a /tmp, a /dev/shm and a
network card of its own, and passes its exit status on. TANDEM_SLURM_FOLDER names a folder that all nodes see. Without
Slurm there is `ssh` in that folder, which runs a command on a node as ssh would. All of it
lives in namespaces of its own: no port, file or process of a Slurm that the machine may have is touched, and whatever
happens to this program, the kernel ends every process and forgets every file of the cluster with it.

Exit status 77, with the reason, where this cannot be: not root, no namespaces, programs missing.
"""
import ctypes
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import time

SKIPPED = 77
FOLDER = pathlib.Path("/run/tandem-slurm")
ADDRESS = "10.77.0.1"
NODES = {"node1": "10.77.0.11", "node2": "10.77.0.12"}
CPUS = 2  # of each node, as Slurm believes
PROGRAMS = ("unshare", "nsenter", "mount", "ip")
SLURM_PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "sbatch", "scancel", "squeue", "scontrol", "sinfo")

CONFIGURATION = f"""
ClusterName=throwaway
SlurmctldHost=control({ADDRESS})
SlurmUser=root
AuthType=auth/munge
# A job that is requeued waits for this long.
AuthInfo=cred_expire=5
StateSaveLocation={FOLDER}/state
SlurmdSpoolDir={FOLDER}/spool-%n
SlurmctldPidFile={FOLDER}/slurmctld.pid
SlurmdPidFile={FOLDER}/slurmd-%n.pid
SlurmctldLogFile={FOLDER}/slurmctld.log
SlurmdLogFile={FOLDER}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/affinity
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=sched_interval=2,batch_sched_delay=0
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SlurmdParameters=config_overrides
ReturnToService=2
MpiDefault=none
MinJobAge=3600
KillWait=5
NodeName=node1 NodeAddr={NODES["node1"]} CPUs={CPUS} State=UNKNOWN
NodeName=node2 NodeAddr={NODES["node2"]} CPUs={CPUS} State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def skip(reason):
    print(f"skipped: {reason}", flush=True)
    sys.exit(SKIPPED)


def die_with_parent():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def enter_namespaces(programs):
    """Runs this program again, seen from inside as process 1; returns only there."""
    if os.getpid() == 1:
        return
    if os.geteuid() != 0:
        skip("nodes of one's own need root")
    missing = [name for name in programs if not shutil.which(name)]
    if missing:
        skip(f"not installed: {' '.join(missing)} (launch/packages.sh)")
    namespaces = ["unshare", "--mount", "--pid", "--net", "--uts", "--ipc", "--fork", "--kill-child", "--mount-proc"]
    trial = "mount -t tmpfs tmpfs /run && ip netns add n1 && ip link add n1 type veth peer name n2 && ip link add n3 type bridge"
    if subprocess.run(namespaces + ["sh", "-c", trial], stderr=subprocess.DEVNULL).returncode:
        skip("no namespaces, mounts or virtual network cards can be made here")
    die_with_parent()  # inherited by unshare, which takes its child, process 1, and so everything with it
    os.execvp(namespaces[0], namespaces + [sys.executable, *sys.argv])


def run_as_init(work):
    """Process 1 inherits every orphan: it waits for them all, and ends, and all with it, when `work` has ended."""
    child = os.fork()
    if child == 0:
        sys.exit(work())
    while True:
        pid, status = os.wait()
        if pid == child:
            sys.exit(os.waitstatus_to_exitcode(status) % 256)


def ip(*words):
    subprocess.run(["ip", *words], check=True)


def connect_nodes():
    """A switch with this host and the nodes on it. With one address for all of them, Open MPI reaches no other node."""
    ip("link", "set", "lo", "up")
    ip("link", "add", "switch", "type", "bridge")
    ip("addr", "add", f"{ADDRESS}/24", "dev", "switch")
    ip("link", "set", "switch", "up")
    for node, address in NODES.items():
        ip("netns", "add", node)
        ip("link", "add", node, "type", "veth", "peer", "name", "eth0", "netns", node)
        ip("link", "set", node, "master", "switch", "up")
        ip("-n", node, "link", "set", "lo", "up")
        ip("-n", node, "addr", "add", f"{address}/24", "dev", "eth0")
        ip("-n", node, "link", "set", "eth0", "up")


def wait_until(holds, seconds, what):
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            raise SystemExit(f"not within {seconds} s: {what}\n" + logs())
        time.sleep(0.1)


def logs():
    parts = []
    for log in sorted(FOLDER.glob("*.log")):
        parts.append(f"--- {log.name}\n" + "".join(log.read_text(errors="replace").splitlines(True)[-20:]))
    return "\n".join(parts)


def node_states():
    asked = subprocess.run(["sinfo", "-N", "-h", "-o", "%N %t"], capture_output=True, text=True)
    return dict(line.split() for line in asked.stdout.splitlines())


def make_nodes():
    subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", "/run"], check=True)
    FOLDER.mkdir()
    socket.sethostname("control")
    hosts = FOLDER / "hosts"
    names = {"control": ADDRESS, **NODES}
    hosts.write_text("127.0.0.1 localhost\n" + "".join(f"{address} {name}\n" for name, address in names.items()))
    subprocess.run(["mount", "--bind", str(hosts), "/etc/hosts"], check=True)
    connect_nodes()
    for name in [name for name in os.environ if name.startswith(("SLURM_", "SBATCH_", "OMPI_", "PMIX_", "PMI_"))]:
        del os.environ[name]
    os.environ["TANDEM_SLURM_FOLDER"] = str(FOLDER)


def run_on_nodes(command):
    """Starts a shell command, `{node}` in it being the node's name, on each node, which it thereby makes."""
    for node in NODES:
        folder = FOLDER / node
        (folder / "tmp").mkdir(parents=True)
        (folder / "tmp").chmod(0o1777)
        own = (f"mount --bind {folder}/tmp /tmp && mount -t tmpfs tmpfs /dev/shm && hostname {node} && "
               f"echo $$ >{folder}/pid && exec {command.format(node=node)}")
        subprocess.Popen(["nsenter", f"--net=/run/netns/{node}", "unshare", "--mount", "--uts", "sh", "-c", own],
                         start_new_session=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                         stderr=subprocess.DEVNULL)


def start_nodes_with_ssh():
    run_on_nodes("sleep infinity")
    pids = [FOLDER / node / "pid" for node in NODES]
    wait_until(lambda: all(pid.exists() and pid.read_text() for pid in pids), 30, "both nodes")
    ssh = FOLDER / "ssh"
    ssh.write_text(f"""#!/bin/sh
# ssh [-OPTION...] NODE COMMAND...: as ssh, without asking who is there.
while [ "${{1#-}}" != "$1" ]; do shift; done
[ -s {FOLDER}/$1/pid ] || {{ echo "ssh: Could not resolve hostname $1: Name or service not known" >&2; exit 255; }}
node=$1
shift
exec nsenter --target "$(cat {FOLDER}/$node/pid)" --mount --uts --net sh -c "cd / && $*"
""")
    ssh.chmod(0o755)


def start_slurm():
    for name in ("state", "munge"):
        (FOLDER / name).mkdir(mode=0o700)
    configuration = FOLDER / "slurm.conf"
    configuration.write_text(CONFIGURATION)
    os.environ["SLURM_CONF"] = str(configuration)

    key = FOLDER / "munge" / "key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o600)
    pathlib.Path("/run/munge").mkdir(mode=0o755)
    subprocess.run(["munged", f"--key-file={key}", f"--log-file={FOLDER}/munge/log", f"--seed-file={FOLDER}/munge/seed",
                    f"--pid-file={FOLDER}/munge/pid"], check=True)
    run_on_nodes("slurmd -D -N {node}")
    subprocess.Popen(["slurmctld", "-D"], start_new_session=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                     stderr=subprocess.DEVNULL)
    wait_until(lambda: node_states() == {node: "idle" for node in NODES}, 30, "both nodes idle")


def main():
    command = sys.argv[1:]
    slurm = command[:1] != ["--without-slurm"]
    command = command if slurm else command[1:]
    if not command:
        raise SystemExit(__doc__)
    enter_namespaces(PROGRAMS + SLURM_PROGRAMS if slurm else PROGRAMS)

    def work():
        make_nodes()
        if slurm:
            start_slurm()
        else:
            start_nodes_with_ssh()
        return subprocess.run(command).returncode % 256

    run_as_init(work)


if __name__ == "__main__":
    main()
