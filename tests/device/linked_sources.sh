#!/bin/sh
# linked_sources.sh MAP SOURCE...: that the linker took nothing from Tandem's libraries but these sources, the emulation
# and what has a stand-in. MAP is the linker's.
map=$1
shift
# Without NCCL there is nothing that the watchdog would watch.
stand_ins="sha256 nccl_reduction watchdog"
listed=" $stand_ins "
for source; do listed="$listed$(basename "$source" .cpp) "; done
taken=$(sed '/^Discarded input sections/,$d; /^Memory Configuration/,$d' "$map" | grep -v libtandem_kernels_emulated |
  grep -o 'libtandem_[a-z_]*\.a([a-z0-9_]*\.cpp\.o)' | sed 's/.*(\(.*\)\.cpp\.o)/\1/' | sort -u)
[ -n "$taken" ] || { echo "$map names no file of a library"; exit 1; }
missing=0
for name in $taken; do
  case $listed in
    *" $name "*) ;;
    *)
      echo "$name.cpp is linked, and is not in tests/device/CMakeLists.txt"
      missing=1
      ;;
  esac
done
exit $missing
