# shellcheck shell=bash
# shellcheck disable=SC2034
# The Debian packages that Tandem needs, said once; sourced by launch/quickstart.sh and tests/run.sh.

tandem_packages=(
  g++ cmake ninja-build pkg-config git
  openmpi-bin libopenmpi-dev libhdf5-dev
  libboost-program-options-dev nlohmann-json3-dev libssl-dev libpcre2-dev libutf8proc-dev libdnnl-dev libeigen3-dev
)
# Tests also compare with PyTorch, read trajectories with other programs and make a Slurm of their own.
tandem_test_packages=(
  libgtest-dev hdf5-tools python3-torch python3-numpy python3-h5py python3-venv
  slurmctld slurmd slurm-client munge iproute2
)

# require_packages NAME...: installs those that are missing, as root or through sudo. Where it cannot, it says which are
# missing, in one line, and returns 3. On systems without dpkg it says so and leaves the rest to CMake.
require_packages() {
  local missing=() package
  if ! command -v dpkg-query >/dev/null; then
    echo "no dpkg here: packages are not checked; on Debian they are: $*" >&2
    return 0
  fi
  for package in "$@"; do
    [[ $(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null) == installed ]] || missing+=("$package")
  done
  [[ ${#missing[@]} -gt 0 ]] || return 0

  local as_root=()
  if [[ $(id -u) != 0 ]]; then
    # Without a terminal nobody could type a password.
    if [[ -t 0 ]]; then as_root=(sudo); else as_root=(sudo -n); fi
    if ! command -v sudo >/dev/null || ! "${as_root[@]}" true 2>/dev/null; then
      echo "missing packages, to be installed as root: apt-get install ${missing[*]}" >&2
      return 3
    fi
  fi
  echo "installing ${missing[*]}"
  local install=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends)
  # The package lists may be older than the mirror; only then are they fetched again.
  if ! "${install[@]}" "${missing[@]}" >/dev/null 2>&1; then
    if ! { "${as_root[@]}" apt-get update -qq && "${install[@]}" "${missing[@]}" >/dev/null; }; then
      echo "these packages could not be installed: apt-get install ${missing[*]}" >&2
      return 3
    fi
  fi
}
