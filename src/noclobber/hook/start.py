# The script that hosts run, by `ask.sh`: `python -I -S start.py HOST [DUTY]`. It is small, because Python
# compiles a script each time it runs. Everything else is imported, and compiled modules are cached.
import gc
import os
import signal
import sys

# Hosts wait 30 seconds. Several of them then let the write through, so a hook that hangs ends before that,
# and the command that runs it refuses (see hosts/command_line.py).
MOST_S = 25


def end_after(seconds: int) -> None:
    """Let the kernel end this process at that time, whatever it waits for. A forked child is not affected."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(seconds)


if __name__ == "__main__":
    code = 2  # Every host takes exit code 2 for a refusal, so a hook that crashes refuses.
    end_after(MOST_S)
    gc.disable()  # The process ends before a collection could free anything.
    try:
        # At the end of the path, so that no installed package can replace a part of the standard library.
        sys.path.append(__file__.rpartition("/noclobber/hook/")[0])
        from noclobber.hook.main import main

        code = main(sys.argv[1:])
    except BaseException as error:
        host, duty = [*sys.argv[1:3], "HOST", ""][:2]
        code = 0 if duty == "note" else 2
        sys.stderr.write(
            f"noclobber: the hook cannot run ({type(error).__name__}: {error}). "
            f"{'The call was not blocked.' if code == 0 else 'So the call was refused, and wrote nothing.'} "
            "`noclobber doctor` says what is wrong. To repair it, install noclobber again and run "
            f"`noclobber install {host}`. To work without it, run `noclobber install {host} --uninstall`, or "
            f"delete the hooks that run {__file__} from the configuration of {host}.\n"
        )
        sys.stderr.flush()
    os._exit(code)  # Skips the interpreter's own shutdown, which takes a millisecond or two.
