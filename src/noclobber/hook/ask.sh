# Ask the process that stands by for this host (standby.py): it has everything loaded, so it answers in a few
# milliseconds. Where there is none, the hook runs as if this script were not there.
#
#     sh ask.sh PYTHON -I -S START HOST DUTY < event > answer
#
# A place has two FIFOs, `N.in` and `N.out`, and is used once; `N.taken` is made by whoever uses it. The event is
# read only when the other side has said that it is ready, so until then the hook can still be run on it. After
# that, an answer without an end is the same as a hook that was killed: exit code 2, and the command that runs
# this answers for it (hosts/command_line.py). Every line of an answer begins with our own number, so that nobody
# can take another's answer for theirs.
#
# NOCLOBBER_STANDBY=off: always run the hook.

case ${NOCLOBBER_STANDBY:-on}.$6 in on.note | on.check | on.shell) ;; *) exec "$@" ;; esac
test -e /proc/self/ns/mnt || exec "$@"

# The runtime folder, as `runtime_folder` finds it. What is not a folder of ours is the hook's to refuse.
noclobber_at=
case ${XDG_RUNTIME_DIR:-} in /*) test -O "$XDG_RUNTIME_DIR" && noclobber_at=$XDG_RUNTIME_DIR/noclobber ;; esac
if test -z "$noclobber_at"; then
  while read -r noclobber_key noclobber_uid noclobber_euid noclobber_more; do
    test "$noclobber_key" = Uid: && break
  done </proc/self/status
  noclobber_at=${TMPDIR:-/tmp}/noclobber-$noclobber_euid
  case ${XDG_STATE_HOME:-} in /*) noclobber_own=$XDG_STATE_HOME ;; *) noclobber_own=${HOME:-}/.local/state ;; esac
  test ! -d "$noclobber_own/noclobber/runtime" || noclobber_at=$noclobber_own/noclobber/runtime
fi
if test -L "$noclobber_at" || test ! -O "$noclobber_at"; then exec "$@" stand-by; fi
noclobber_at=$noclobber_at/standby

# Not by the host's path: it may be empty, or have another `cat` first.
for noclobber_bin in /bin /usr/bin /run/current-system/sw/bin ''; do test ! -x "$noclobber_bin/cat" || break; done
test -n "$noclobber_bin" || exec "$@"

noclobber_send() {
  # Now the end of the other process is the end of the file. Not in the list below: bash would keep a copy.
  exec 3>&- 6>&-
  # Ours, and that of what is open: others may put something into our folder if its mode was changed. A hook
  # refuses such a folder.
  test -O /proc/self/fd/4 && test -O /proc/self/fd/5 || return 1
  printf '%s\n' "$$ $5 $6" "$1" "$4" >&4 || return 1
  IFS= read -r noclobber_line <&5 && test "$noclobber_line" = "$$ ready" || return 1
  # Beside us: a host that never ends its event must not keep us from seeing the end of the other process.
  "$noclobber_bin/cat" <&8 >&4 4>&- 5<&- 7>&- 8<&- &
  exec 4>&-
  noclobber_said= noclobber_between=
  while IFS= read -r noclobber_line <&5; do
    case $noclobber_line in
    "$$ said "*)
      noclobber_said=$noclobber_said$noclobber_between${noclobber_line#"$$ said "}
      noclobber_between='
'
      ;;
    "$$ file")
      exec 9<"$noclobber_at/$$.said"
      test -O /proc/self/fd/9 && "$noclobber_bin/cat" <&9 && "$noclobber_bin/rm" -f "$noclobber_at/$$.said" || exit 2
      ;;
    "$$ aside "*) printf '%s\n' "${noclobber_line#"$$ aside "}" >&7 ;;
    "$$ end "*)
      printf %s "$noclobber_said" || exit 2
      exit "${noclobber_line#"$$ end "}"
      ;;
    *) break ;;
    esac
  done
  kill "$!"
  # Whether a command may be a patch is told by the event (hosts/command_line.py). A part of it was read, so the
  # rest must not be taken for all of it.
  test "$6" != shell || "$noclobber_bin/cat" <&8 >/dev/null
  exit 2
}

trap '' PIPE # A place that was left: `printf` fails, instead of ending this shell.
set -C       # `>` makes a file, or fails: one of all that ask at once gets a place.
for noclobber_place in 1 2; do
  test -p "$noclobber_at/$noclobber_place.in" || break
  true 2>/dev/null >"$noclobber_at/$noclobber_place.taken" || continue
  # To open one side of a FIFO waits for the other side; to open both does not. Once both are there, one side is
  # opened alone, and kept.
  {
    {
      noclobber_send "$@"
    } 6<>"$noclobber_at/$noclobber_place.out" 5<"$noclobber_at/$noclobber_place.out"
  } 7>&2 8<&0 2>/dev/null 3<>"$noclobber_at/$noclobber_place.in" 4>"$noclobber_at/$noclobber_place.in"
  break
done
trap - PIPE
exec "$@" stand-by
