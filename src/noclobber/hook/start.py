# The script that hosts run, by `ask.sh`: `python -I -S start.py HOST [DUTY]`. It is small, because Python
# compiles a script each time it runs. Everything else is imported, and compiled modules are cached.
import _frozen_importlib_external
import _signal  # type: ignore[import-not-found]  # `signal` loads `enum`.
import gc
import sys

# Hosts wait 30 seconds. Several of them then let the write through, so a hook that hangs ends before that,
# and the command that runs it refuses (see hosts/command_line.py).
MOST_S = 25


def end_after(seconds: int) -> None:
    """Let the kernel end this process at that time, whatever it waits for. A forked child is not affected."""
    _signal.signal(_signal.SIGALRM, _signal.SIG_DFL)
    _signal.alarm(seconds)


if __name__ == "__main__":
    code = 2  # Every host takes exit code 2 for a refusal, so a hook that crashes refuses.
    end_after(MOST_S)
    gc.disable()  # Saves about a millisecond; the process ends before a collection could free anything.
    try:
        # At the end of the path, so that no installed package can replace a part of the standard library.
        folder = __file__.rpartition("/hook/")[0]
        sys.path.append(folder.rpartition("/")[0])
        # Before its package is there, because what that loads is to be found by it. Half of what it takes to
        # load a module is looking for it.
        name, path = "noclobber.core.light.own_modules", f"{folder}/core/light/own_modules.py"
        light = sys.modules[name] = type(sys)(name)
        light.__file__ = path
        loaded = _frozen_importlib_external.SourceFileLoader(name, path).get_code(name)
        exec(loaded or "", light.__dict__)  # noqa: S102 - as Python does
        light.use()
        light.load_os()
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
    import os  # Loaded already, unless an import is what failed.

    os._exit(code)  # Skips the interpreter's own shutdown, which takes a millisecond or two.
