# Read by bash before a command that is to run in the guarded shell (BASH_ENV). If that cannot be, the command runs as it is.
if test -n "$BASH_EXECUTION_STRING" && test -x "$NOCLOBBER_SHELL_PYTHON" && test -r "$NOCLOBBER_SHELL_START"; then
    exec "$NOCLOBBER_SHELL_PYTHON" -I -S "$NOCLOBBER_SHELL_START" "$BASH" "$BASH_EXECUTION_STRING"
fi
BASH_ENV=$NOCLOBBER_SHELL_BASH_ENV
test -n "$BASH_ENV" || unset BASH_ENV
test -z "$BASH_ENV" || test ! -r "$BASH_ENV" || . "$BASH_ENV"
