#!/usr/bin/env bash
# What Tandem is built with (launch/packages.txt), as Debian packages; sourced by launch/quickstart.sh and tests/run.sh.
#
#   launch/packages.sh --check
#
# says in one run all that is missing, with its names on Debian, RHEL and in Spack; exit code 3 if anything is.

packages_folder=$(dirname "${BASH_SOURCE[0]}")
# shellcheck disable=SC2034  # used by those who source this
read -r -a tandem_packages < <(awk -F ' *[|] *' '!/^#/ && $1 != "gtest" && !seen[$3]++ {printf "%s ", $3} END {print "git"}' \
  "$packages_folder/packages.txt")
# Tests also compare with PyTorch, read trajectories with other programs and make a Slurm of their own.
# shellcheck disable=SC2034
tandem_test_packages=(
  libgtest-dev libboost-context-dev hdf5-tools python3-torch python3-numpy python3-h5py python3-venv
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

check_packages() {
  local version folder
  version=$(cmake --version 2>/dev/null | sed -n 's/^cmake version //p')
  if [[ -z $version || $(printf '%s\n' 3.16 "$version" | sort -V | head -n 1) != 3.16 ]]; then
    echo "CMake here: ${version:-none}. It looks for the rest, so here is all that the build needs:" >&2
    sed -n '/^# name/{s/^# *//;p;d}; /^[^# ]/p' "$packages_folder/packages.txt" | cut -d '|' -f 2-5 >&2
    return 3
  fi
  folder=$(mktemp -d) || return 3
  if cmake -S "$packages_folder/.." -B "$folder" -G Ninja -DTANDEM_CHECK=ON -DTANDEM_TESTS=OFF >"$folder/out" 2>&1; then
    sed -n 's/^-- \(MPI is not\)/\1/p' "$folder/out"
    echo "all is here: cmake --preset release -DTANDEM_TESTS=OFF && cmake --build build/release --target tandem"
  else
    grep -v '^-- ' "$folder/out" >&2
    rm -rf -- "$folder"
    return 3
  fi
  rm -rf -- "$folder"
}

if [[ ${BASH_SOURCE[0]} == "$0" ]]; then
  if [[ $# != 1 || $1 != --check ]]; then
    echo "usage: launch/packages.sh --check" >&2
    exit 2
  fi
  check_packages
fi
