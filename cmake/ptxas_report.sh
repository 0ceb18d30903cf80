#!/bin/sh
# Runs a compilation by nvcc (-Xptxas=-v). What ptxas tells of each kernel's registers and memory goes into OBJECT.ptxas,
# everything else to stderr as ever.
object=""
previous=""
for argument in "$@"; do
  [ "$previous" = -o ] && object=$argument
  previous=$argument
done
[ -n "$object" ] || exec "$@"
"$@" 2>"$object.stderr"
status=$?
pattern='^ptxas info|bytes stack frame|^nvlink info'
grep -E "$pattern" "$object.stderr" >"$object.ptxas"
grep -Ev "$pattern" "$object.stderr" >&2
rm -f "$object.stderr"
exit $status
