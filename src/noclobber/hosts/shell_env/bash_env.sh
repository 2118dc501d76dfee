# Read by bash before a command that is to run in the guarded shell (BASH_ENV). If that cannot be, the command
# runs as it is. Nothing in its text decides about that: a hook has left a note, or there is none.
if test -n "$BASH_EXECUTION_STRING"; then
    noclobber_note=yes
    test -z "$NOCLOBBER_SHELL_NOTES" || for noclobber_note in "$NOCLOBBER_SHELL_NOTES"*; do break; done
    if test yes = "$noclobber_note" || test -e "$noclobber_note"; then
        if test -x "$NOCLOBBER_SHELL_PYTHON" && test -r "$NOCLOBBER_SHELL_START"; then
            exec "$NOCLOBBER_SHELL_PYTHON" -I -S "$NOCLOBBER_SHELL_START" "$BASH" "$BASH_EXECUTION_STRING"
        fi
    fi
    unset noclobber_note NOCLOBBER_SHELL_PYTHON NOCLOBBER_SHELL_START NOCLOBBER_SHELL_NOTES
fi
BASH_ENV=$NOCLOBBER_SHELL_BASH_ENV
unset NOCLOBBER_SHELL_BASH_ENV
test -n "$BASH_ENV" || unset BASH_ENV
test -z "$BASH_ENV" || test ! -r "$BASH_ENV" || . "$BASH_ENV"
