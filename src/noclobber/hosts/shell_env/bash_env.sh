# Read by bash before a command that is to run in the guarded shell (BASH_ENV). If that cannot be, the command runs as it is.
case $BASH_EXECUTION_STRING in
'') ;;
*noclobber_said=* | */noclobber/hook/start.py* | *'noclobber hook '*) ;; # A hook of ours, which has to know how its host was started.
*)
    if test -x "$NOCLOBBER_SHELL_PYTHON" && test -r "$NOCLOBBER_SHELL_START"; then
        exec "$NOCLOBBER_SHELL_PYTHON" -I -S "$NOCLOBBER_SHELL_START" "$BASH" "$BASH_EXECUTION_STRING"
    fi
    ;;
esac
BASH_ENV=$NOCLOBBER_SHELL_BASH_ENV
test -n "$BASH_ENV" || unset BASH_ENV
test -z "$BASH_ENV" || test ! -r "$BASH_ENV" || . "$BASH_ENV"
