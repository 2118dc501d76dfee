"""
Programs and options that write no file, for `read_only`: lists of words, each with what it is for.

A list is of what is harmless. What is missing here is only guarded, at the cost of some milliseconds.
"""

from __future__ import annotations


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Programs that write nothing, whatever they are given.
OPEN = _words("""
    ls cat wc head tail nl tac pwd echo true false : basename dirname realpath readlink stat du df
    whoami id uname which cut tr rev fold expand unexpand paste join comm cmp diff md5sum sha1sum
    sha224sum sha256sum sha384sum sha512sum cksum b2sum seq sleep ps printenv nproc uptime free od
    hexdump strings jq egrep fgrep arch tty groups locale getconf type
""")
# Programs with other options that write: the letters, and the long options, that do not.
LETTERS = {
    "grep": "abcdefhilmnoqrsvwxzABCDEFGHILPRTUVZ0123456789",
    "rg": "abcefghilmnopqrstuvwxABCEFHILMNPSTUV0123456789.",
    "sort": "bcCdfghikmMnrRstuVz0123456789,.",
    "tree": "adfilpsughDFLNI0123456789",
    "file": "bihkLNprsz0",
    "column": "cetxsno0123456789",
}
LONG = {
    "grep": _words("""
    recursive include exclude exclude-dir line-number ignore-case count color files-with-matches files-
    without-match extended-regexp fixed-strings only-matching invert-match word-regexp max-count after-
    context before-context context regexp with-filename no-filename quiet silent no-messages null text
    perl-regexp
"""),
    "rg": _words("""
    files type type-not glob iglob hidden no-ignore line-number ignore-case no-line-number count files-
    with-matches files-without-match fixed-strings sort only-matching word-regexp max-count after-
    context before-context context json multiline no-heading heading color max-depth smart-case case-
    sensitive stats invert-match pcre2 regexp with-filename no-filename vimgrep unrestricted
"""),
    "sort": _words("""
    numeric-sort reverse unique key field-separator version-sort human-numeric-sort ignore-case stable
    check zero-terminated general-numeric-sort random-sort
"""),
    "tree": _words("""
    dirsfirst gitignore prune noreport
"""),
    "file": _words("""
    brief mime mime-type mime-encoding dereference no-dereference
"""),
    "column": _words("""
    table separator output-separator json
"""),
}
# git's own options before its command, and how many words follow each.
GIT_BEFORE = {"-C": 1, "--no-pager": 0, "-P": 0, "--no-optional-locks": 0}
GIT_LETTERS = "abcdeghilmnpqrstuvwxyzABCEFGHILMNPRSUVWX0123456789,"
GIT_LONG = _words("""
    oneline stat name-only name-status graph all decorate follow patch no-patch short branch porcelain
    cached staged format pretty date since until author grep max-count reverse abbrev-commit no-merges
    merges first-parent numstat shortstat summary word-diff color no-color unified ignore-space-change
    untracked-files ignore-all-space diff-filter no-renames show-toplevel git-dir abbrev-ref verify tags
    is-inside-work-tree others exclude-standard modified deleted stage full-name raw quiet exit-code
    check minimal patience histogram left-right cherry-pick topo-order ignored long show-current count
    not remotes branches no-ext-diff no-textconv line show-prefix show-cdup absolute-git-dir symbolic-
    full-name dirty always contains merged no-merged sort points-at is-ancestor text ignore-case line-
    number binary
""")
# Commands of git that only look, whatever their operands are.
GIT_LOOKS = _words("""
    status log diff show rev-parse ls-files ls-tree blame annotate describe shortlog rev-list merge-base
    name-rev for-each-ref diff-tree diff-index diff-files count-objects check-ignore cherry show-ref
    version var whatchanged grep
""")
# Tests and actions of `find` that take a word, and those that take none.
FIND_WITH_WORD = _words("""
    -name -iname -path -ipath -wholename -regex -iregex -type -xtype -maxdepth -mindepth -size -mtime
    -mmin -ctime -cmin -atime -amin -newer -perm -user -group -links -inum -printf -regextype -lname
    -samefile -newermt
""")
FIND_ALONE = _words("""
    -print -print0 -ls -prune -o -or -a -and -not ! ( ) -empty -depth -xdev -mount -readable -writable
    -executable -true -false -quit -nouser -nogroup -follow -L -H -P -daystart -noleaf ,
""")
# Programs that are only known to be harmless with `--version`.
VERSIONED = _words("""
    python python3 node npm pip pip3 cargo rustc gcc cc clang java ruby make cmake uv ruff mypy perl
    bash sh zsh git
""")
SET = _words("-e -u -x -o pipefail -eu -ex -euo -eo -euxo +e errexit nounset")
VARIABLES = _words("""
    LC_ALL LANG LC_CTYPE NO_COLOR TERM COLUMNS GIT_OPTIONAL_LOCKS
""")
