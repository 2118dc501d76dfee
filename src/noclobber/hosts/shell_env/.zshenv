# Read by zsh before a command that is to run in the guarded shell (ZDOTDIR). If that cannot be, the command runs as it is.
if test -n "$ZSH_EXECUTION_STRING" && test -x "$NOCLOBBER_SHELL_PYTHON" && test -r "$NOCLOBBER_SHELL_START"; then
    exec "$NOCLOBBER_SHELL_PYTHON" -I -S "$NOCLOBBER_SHELL_START" "$(readlink /proc/$$/exe || command -v zsh)" "$ZSH_EXECUTION_STRING"
fi
ZDOTDIR=$NOCLOBBER_SHELL_ZDOTDIR
test -n "$ZDOTDIR" || unset ZDOTDIR
test ! -r "${ZDOTDIR:-$HOME}/.zshenv" || . "${ZDOTDIR:-$HOME}/.zshenv"
