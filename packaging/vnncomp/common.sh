# shellcheck shell=bash disable=SC2034,SC2154
# What the three scripts of VNN-COMP share; `here` is their folder. Read by them, not run.
# $BOUNDSCOPE_VENV names another environment than .venv.

root=$(cd -- "$here/../.." && pwd)
venv=${BOUNDSCOPE_VENV:-$root/.venv}
boundscope=$venv/bin/boundscope
# The process group of the last run, so that the next one finds nothing left of it.
state_folder=${XDG_RUNTIME_DIR:-/tmp}/boundscope-vnncomp-$(id -u)
state=$state_folder/group

complain() {
  printf '%s: %s\n' "$(basename -- "$0")" "$*" >&2
}

# The version of the interface, the first argument of every script.
expect_version() {
  if [ "$1" != v1 ]; then
    complain "the first argument must be v1, not '$1'"
    exit 1
  fi
}

# The file itself, or packed or unpacked beside it, as the competition's repositories have it.
find_file() {
  local each
  for each in "$1" "$1.gz" "${1%.gz}"; do
    if [ -f "$each" ]; then
      printf '%s\n' "$each"
      return
    fi
  done
  complain "there is no $1, plain or .gz"
  return 1
}

# End what an earlier run has left: its own process group, and only where that is still one of Boundscope's.
end_leftovers() {
  local group member
  group=$(cat -- "$state" 2>/dev/null || true)
  rm -f -- "$state"
  case $group in
    '' | *[!0-9]*) return ;;
  esac
  for member in $(pgrep -g "$group" || true); do
    if tr '\0' ' ' <"/proc/$member/cmdline" 2>/dev/null | grep -q boundscope; then
      kill -KILL -- "-$group" 2>/dev/null || true
      return
    fi
  done
}
