# The script that hosts run: `python -I -S start.py HOST [DUTY]`. As small as can be, because a script is
# compiled anew each time it runs; everything else is imported, and imports are cached.
import sys

if __name__ == "__main__":
    code = 2  # Every host takes 2 for a refusal. It stands until somebody has judged.
    try:
        # Last, so that nothing that is installed beside us stands in for a part of the standard library.
        sys.path.append(__file__.rpartition("/noclobber/hook/")[0])
        from noclobber.hook.main import main

        code = main(sys.argv[1:])
    except BaseException as error:
        code = 0 if sys.argv[2:3] == ["note"] else 2
        sys.stderr.write(
            f"noclobber: the hook itself failed ({type(error).__name__}: {error}), so no write can be "
            "checked. Run `noclobber doctor`.\n"
        )
        sys.stderr.flush()
    import os  # Is loaded by now, unless importing is what failed.

    os._exit(code)  # Without taking the interpreter apart: a millisecond or two.
