# The script that a program runs a guarded command with: `python -I -S enclosed.py RUN_FOLDER REPORT_FD`. The
# command and its folder are in the folder's job.json, its environment is ours. A process of its own,
# because it waits for every process that the command leaves behind, and a program may have children of its
# own.
import os
import signal
import sys

if __name__ == "__main__":
    sys.path.append(__file__.rpartition("/noclobber/shell/")[0])
    from noclobber.core.json_text import spell
    from noclobber.shell.namespace import UnavailableError
    from noclobber.shell.process import CommandProcess, Ended
    from noclobber.shell.runs import RunFolder
    from noclobber.shell.starting import Start, start

    path, report_fd = sys.argv[1], int(sys.argv[2])
    os.set_inheritable(report_fd, False)
    folder = RunFolder(path.rsplit("/", 3)[0], path.rpartition("/")[2], -1)
    job = folder.noted("job") or {}
    report = {}
    begun: CommandProcess | Ended | None = None
    early: list[int] = []

    def end_it(number: int, frame: object) -> None:
        if isinstance(begun, CommandProcess):
            os.kill(begun.pid, number)
        else:
            early.append(number)

    # Before there is anything to end: were we ended between the command's start and our wait for it, what it
    # has started would stay, and hold its output open for ever.
    signal.signal(signal.SIGTERM, end_it)
    try:
        environment = dict(os.environ)
        begun = start(Start(folder, job["argv"], job["cwd"], environment, job["first_ns"]))
        if early and isinstance(begun, CommandProcess):
            os.kill(begun.pid, early[0])
        ended = begun.wait(job["grace_s"]) if isinstance(begun, CommandProcess) else begun
        report = ended._asdict()
    except UnavailableError as error:
        report = {"unavailable": str(error)}
    os.write(report_fd, spell(report).encode("utf-8", "replace"))
    os._exit(0)
