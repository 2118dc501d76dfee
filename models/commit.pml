/*
 * The commit of one file: disk/commit/{committer,section,swap,restore,recovery}.py.
 *
 * WRITERS guarded writers, each of which reads the file and then commits once; a reader (READER); an
 * editor that saves by rename (EDITOR); a program that appends in place (APPENDS); one that truncates the file
 * and writes it anew (TRUNCATES); and up to CRASHES kills of a writer, between any two steps, in the
 * recovery too.
 *
 * A file's content is the set of updates that are in it, one bit for each program. What is checked:
 *   - no lost update: what was saved is in the file at the end, unless a later save by another program covered it;
 *   - nobody reads a version that was never committed;
 *   - what somebody saved in place after a kill stays at its name, if it was saved before recovery began;
 *   - nobody waits for ever (invalid end states).
 *
 * Not in the model: durability, links, folders, levels below lease+exchange, and a write through a descriptor that
 * was opened so late that the displaced file has been swept already.
 *
 * Mutations, each of which must be convicted: MUTATE_NO_SECOND_LOOK, MUTATE_NO_LEASE, MUTATE_RENAME_BACK,
 * MUTATE_NO_MUTEX, MUTATE_NO_RECOVERY, MUTATE_BLIND_SWEEP, MUTATE_BLIND_UNDO.
 */
#ifndef WRITERS
#define WRITERS 2
#endif
#ifndef CRASHES
#define CRASHES 1
#endif

#define RENAMER WRITERS          /* its bit, and the number of its file minus one */
#define APPENDER (WRITERS + 1)
#define TRUNCATER (WRITERS + 2)
#define BIT(n) (1 << (n))
#define OWN(p) ((p) + 1)         /* the inode that a writer stages, or the editor renames into place */
#define INODES (WRITERS + 2)     /* 0 is the file as it was */
#define FREE 255
#define NOBODY 255

#define IDLE 0
#define PREPARING 1
#define SWAPPING 2
#define RESTORING 3

byte target = 0;                 /* the inode at the name */
byte content[INODES];
byte aside[WRITERS];             /* the inode at a writer's swap name */
byte marked[WRITERS];            /* what the sweep may delete: a file with this content */
bool left_to_sweep[WRITERS];

bool has_copy[WRITERS];          /* our own version is set aside, before it is copied over */
bool is_mixed[INODES];           /* in the middle of that copy: a part of each */
bool is_touched[INODES];         /* somebody has written to it in place: its bytes show that */
byte must_stay = 0;              /* saved in place between a kill and the recovery */

byte mutex = FREE;
bool read_lease[INODES];
bool write_lease[INODES];
byte writing[INODES];            /* open for writing, or inside open() */
byte waiting[INODES];            /* inside open(), stopped by a lease */

byte note = IDLE;
byte note_by, note_expected, note_new;

byte settled = 0;                /* updates of guarded writers that others may see */
byte landed = 0;                 /* those that were reported, or found landed by a recovery */
byte saved = 0;                  /* updates of the other programs */
byte covered = 0;                /* what a later save by another program replaced */
byte kept = 0;                   /* kept aside and reported: copies */
bool kept_file[INODES];          /* the same: files */
bool unlinked[INODES];           /* replaced by the editor: what is appended to it later is lost anyway */
byte late = 0;                   /* opened when the name had another file already */
bool has_crashed = false;
bool renamed_back = false;
byte crashes = CRASHES;
byte running = 0, started = 0;
bool all_started = false;

#ifdef MUTATE_NO_MUTEX
#define TAKE_MUTEX mutex = p
#define GIVE_MUTEX mutex = FREE
#else
#define TAKE_MUTEX atomic { mutex == FREE -> mutex = p }
#define GIVE_MUTEX mutex = FREE
#endif

/* A kill: the kernel frees the mutex and ends the leases. */
#define MAY_CRASH \
    if \
    :: atomic { crashes > 0 -> crashes--; has_crashed = true; \
        if :: old != NOBODY -> read_lease[old] = false :: else fi; \
        if :: mine -> write_lease[OWN(p)] = false :: else fi; \
        mutex = FREE; }; goto dead \
    :: skip \
    fi

#ifdef MUTATE_NO_LEASE
#define QUIET true
#else
#define QUIET (waiting[old] == 0)
#endif

inline take_read_lease() {
    /* A lease is refused while somebody has the file open for writing; patience may run out. */
#ifdef MUTATE_NO_LEASE
    has_lease = true;
#else
    if
    :: atomic { writing[old] == 0 -> read_lease[old] = true; has_lease = true }
    :: atomic { writing[old] > 0 -> has_lease = false }
    fi
#endif
}

inline release_lease() {
    read_lease[old] = false
}

/* function: put_back */
inline put_back(by) {
    back = false;
    if
    :: target != OWN(by) -> skip                 /* somebody has saved since */
    :: else ->
        d_step { wanted = OWN(by); putting = aside[by] };
        do
        :: atomic { came = target; target = aside[by]; aside[by] = came };
            atomic {
                MAY_CRASH;
                if
                :: aside[by] == wanted -> back = true; break      /* step: put-back */
                :: else -> came = aside[by]; wanted = putting; putting = came
                fi
            }
        od
    fi
}

/* function: recover. The mutex is held, and a note is in use: its writer was killed. */
inline recover() {
    if
    :: note == PREPARING -> skip
    :: else ->
        d_step { gone = note_by; old = NOBODY };
        if
        :: aside[gone] == OWN(gone) ->           /* function: _discard */
            d_step {
                if
                :: content[OWN(gone)] != note_new && content[OWN(gone)] != content[target] ->
                    kept_file[OWN(gone)] = true
                :: else ->                       /* function: _leave_to_sweep. Somebody may be inside open(). */
                    marked[gone] = content[OWN(gone)]; left_to_sweep[gone] = true
                fi
            }
        :: else ->
            /* function: _look. Its writers were let in when the lease ended: let them finish, or not. */
            old = aside[gone];
            take_read_lease();
            d_step { displaced = content[old]; release_lease(); old = NOBODY };
            atomic { MAY_CRASH; skip };
            if
            :: note == SWAPPING && displaced == note_expected ->    /* function: _conclude */
                atomic {
                    landed = landed | BIT(gone);
                    marked[gone] = displaced; left_to_sweep[gone] = true
                }
            :: else ->                           /* function: _undo */
                if
                :: content[target] == displaced ->
                    atomic { marked[gone] = displaced; left_to_sweep[gone] = true }
                :: else ->
                    d_step {
#ifdef MUTATE_BLIND_UNDO
                        ours = target == OWN(gone) &&
                            (content[target] == note_new || note == RESTORING);
#else
                        ours = target == OWN(gone) && !is_touched[target] &&
                            ((content[target] == note_new && !is_mixed[target]) ||
                            (note == RESTORING && has_copy[gone]));     /* function: _is_half_restored */
#endif
                        if                       /* function: keep_copy */
                        :: displaced != note_expected -> kept = kept | content[aside[gone]]
                        :: else
                        fi
                    };
                    atomic { MAY_CRASH; skip };
                    if
                    :: ours -> put_back(gone)
                    :: else -> back = false
                    fi;
                    atomic {
                        if
                        :: back && (content[aside[gone]] == note_new || content[aside[gone]] == displaced) ->
                            marked[gone] = content[aside[gone]]; left_to_sweep[gone] = true
                        :: else -> kept_file[aside[gone]] = true
                        fi
                    }
                fi
            fi
        fi
    fi;
    atomic { MAY_CRASH; note = IDLE }
}

/* function: restore */
inline restore() {
    note = RESTORING;                            /* step: restoring */
    do
    :: atomic { MAY_CRASH; take_read_lease() };
        if
        :: has_lease ->
#ifdef MUTATE_RENAME_BACK
            release_lease(); goto rename_back;
#endif
            atomic { MAY_CRASH; has_copy[p] = true };               /* step: set-ours-aside */
            atomic { MAY_CRASH; is_mixed[OWN(p)] = true };          /* step: copying */
            atomic { MAY_CRASH; content[OWN(p)] = content[old]; is_mixed[OWN(p)] = false };  /* step: copied-back */
            if
            :: atomic { QUIET -> marked[p] = content[old]; left_to_sweep[p] = true }; break
            :: atomic { !QUIET -> release_lease() }
            fi
        :: else -> goto rename_back
        fi
    od
}

proctype Writer(byte p) {
    byte found, expected, old = NOBODY, gone, displaced, wanted, putting, came;
    bool mine = false, has_lease, back, ours;

    /* The read that the write is based on: what is hidden by a lease cannot be opened. */
    atomic { started == p -> started++; found = target };      /* Writers are alike: any order is this one. */
    atomic { !write_lease[found] -> expected = content[found] };

    TAKE_MUTEX;                                  /* step: entered */
#ifndef MUTATE_NO_RECOVERY
    if
    :: note != IDLE -> recover()
    :: else
    fi;
#endif
    old = target;                                /* function: open_old */
    atomic { note = PREPARING; note_by = p };    /* function: prepare */
    atomic { MAY_CRASH; content[OWN(p)] = expected | BIT(p) };       /* step: staged */
    atomic {
        MAY_CRASH;
        take_read_lease();                       /* step: leased */
        if :: !has_lease -> goto refused :: else fi
    };
    if :: content[old] != expected -> goto refused :: else fi;       /* step: verified */
    atomic { note = SWAPPING; note_expected = expected; note_new = content[OWN(p)] };  /* step: noted */
    atomic { MAY_CRASH; write_lease[OWN(p)] = true; mine = true };
    do                                           /* function: exchange */
    :: !QUIET ->
        release_lease();                         /* function: _let_writers_finish */
        atomic { take_read_lease(); if :: !has_lease -> goto refused :: else fi };
        if :: content[old] != expected -> goto refused :: else fi
    :: QUIET ->
        if
        :: target == old -> break
        :: else ->
            release_lease();                     /* function: _start_over */
            old = target;
            atomic { take_read_lease(); if :: !has_lease -> goto refused :: else fi };
            if :: content[old] != expected -> goto refused :: else fi
        fi
    od;
    atomic {
        MAY_CRASH;                               /* step: before-exchange */
        aside[p] = target; target = OWN(p)       /* step: exchanged */
    };
    atomic { MAY_CRASH; skip };
#ifndef MUTATE_NO_SECOND_LOOK
    if                                           /* function: settle */
    :: aside[p] != old ->
        release_lease();                         /* function: _take_the_other */
        old = aside[p];
        atomic { take_read_lease(); if :: !has_lease -> goto conflict :: else fi };
        if :: content[old] != expected -> goto conflict :: else fi
    :: else
    fi;
    do
    :: !QUIET ->
        release_lease();
        atomic { take_read_lease(); if :: !has_lease -> goto conflict :: else fi };
        if :: content[old] != expected -> goto conflict :: else fi
    :: QUIET -> break
    od;
#endif
    atomic { MAY_CRASH; settled = settled | BIT(p); marked[p] = expected };            /* step: settled */
    atomic { MAY_CRASH; write_lease[OWN(p)] = false; mine = false };                   /* step: released */
    atomic { MAY_CRASH; left_to_sweep[p] = true; release_lease(); old = NOBODY };
    goto leave;

conflict:                                        /* step: conflict */
    restore();
    goto restored;
rename_back:                                     /* function: _rename_back */
    renamed_back = true;
    put_back(p);
#ifndef MUTATE_RENAME_BACK
    content[OWN(p)] = content[old];              /* function: _copy_what_is_there */
#endif
    atomic {
        MAY_CRASH;
        if
        :: back -> marked[p] = content[aside[p]]; left_to_sweep[p] = true
        :: else -> kept_file[aside[p]] = true
        fi
    };
restored:
    atomic { write_lease[OWN(p)] = false; mine = false };
refused:
    atomic { read_lease[old] = false; write_lease[OWN(p)] = false; mine = false; old = NOBODY };
leave:
    atomic { MAY_CRASH; landed = landed | (settled & BIT(p)); note = IDLE };    /* function: clear */
    GIVE_MUTEX;
dead:
    running--
}

/* A program that reads: it looks the name up, and then waits inside open() while the file is hidden. */
#ifdef READER
proctype Reader() {
    byte found;
    found = target;
    atomic {
        !write_lease[found] ->
        /* After a kill nothing is hidden, until the next call recovers. */
        assert(has_crashed || (content[found] & (BIT(WRITERS) - 1) & ~settled) == 0)
    };
    running--
}
#endif

#ifdef EDITOR
/* An editor: reads, writes another file, renames it into place. */
proctype Renamer() {
    byte found, read;
    found = target;
    atomic { !write_lease[found] -> read = content[found] };
    content[OWN(RENAMER)] = read | BIT(RENAMER);
    atomic {
        covered = covered | content[target];
        if      /* In the middle of a commit, it covers what that commit displaced as well. */
        :: target > 0 && target <= WRITERS && mutex == target - 1 ->
            covered = covered | content[aside[target - 1]];
            unlinked[aside[target - 1]] = true
        :: else
        fi;
        covered = covered & ~content[OWN(RENAMER)];
        unlinked[target] = true;
        target = OWN(RENAMER);
        saved = saved | BIT(RENAMER)
    };
    running--
}
#endif

/* Saved after a kill, whole, and nobody has begun to recover. */
#define IF_IT_MUST_STAY(who) \
    if \
    :: has_crashed && note != IDLE && mutex == FREE && found == target -> must_stay = must_stay | BIT(who) \
    :: else \
    fi

#ifdef APPENDS
/* A program that appends in place. */
proctype Appender() {
    byte found;
    found = target;
    atomic {                     /* inside open(): counted as a writer first, then stopped by a lease */
        writing[found]++;
        if :: found != target -> late = late | BIT(APPENDER) :: else fi;
        if
        :: read_lease[found] || write_lease[found] ->
            waiting[found]++;
            (!read_lease[found] && !write_lease[found]);
            waiting[found]--
        :: else
        fi
    };
    atomic { content[found] = content[found] | BIT(APPENDER); is_touched[found] = true };
    atomic {
        saved = saved | BIT(APPENDER);
        IF_IT_MUST_STAY(APPENDER);
        if :: unlinked[found] -> covered = covered | BIT(APPENDER) :: else fi;
        writing[found]--
    };
    running--
}
#endif

#ifdef TRUNCATES
/* A program that opens the file, which empties it, and writes it anew. It has not read it. */
proctype Truncater() {
    byte found;
    found = target;
    atomic {
        writing[found]++;
        if :: found != target -> late = late | BIT(TRUNCATER) :: else fi;
        if
        :: read_lease[found] || write_lease[found] ->
            waiting[found]++;
            (!read_lease[found] && !write_lease[found]);
            waiting[found]--
        :: else
        fi;
        covered = covered | content[found];
        content[found] = 0; is_touched[found] = true
    };
    content[found] = content[found] | BIT(TRUNCATER);
    atomic {
        saved = saved | BIT(TRUNCATER);
        IF_IT_MUST_STAY(TRUNCATER);
        if :: unlinked[found] -> covered = covered | BIT(TRUNCATER) :: else fi;
        writing[found]--
    };
    running--
}
#endif

/* The next call, when everybody is done: recovers what is left, sweeps, and looks at the result. */
proctype Last() {
    byte p = WRITERS, old = NOBODY, gone, displaced, wanted, putting, came, all;
    bool mine = false, has_lease, back, ours;

    (all_started && running == 0);
    crashes = 0;
#ifndef MUTATE_NO_RECOVERY
    if
    :: note != IDLE -> recover()
    :: else
    fi;
#endif
    d_step {
        p = 0;
        do
        :: p < WRITERS ->
            if
#ifndef MUTATE_BLIND_SWEEP
            :: left_to_sweep[p] && content[aside[p]] != marked[p] -> kept = kept | content[aside[p]]
#endif
            :: else
            fi;
            p++
        :: else -> break
        od;
        p = 0;
        do
        :: p < INODES ->
            if :: kept_file[p] -> kept = kept | content[p] :: else fi;
            p++
        :: else -> break
        od;
        all = content[target] | covered;
    };
    /* At its name, or covered by another program; kept aside only after a kill, or a rename back, or if late. */
    assert((landed & ~(all | (has_crashed -> kept : 0))) == 0);
    assert((saved & BIT(RENAMER) & ~(all | ((has_crashed || renamed_back) -> kept : 0))) == 0);
    assert((saved & BIT(APPENDER) & ~(all | ((has_crashed || renamed_back || late) -> kept : 0))) == 0);
    assert((saved & BIT(TRUNCATER) & ~(all | ((has_crashed || renamed_back || late) -> kept : 0))) == 0);
    assert((must_stay & ~all) == 0);
    assert(mutex == FREE);
dead:
    skip
}

init {
    byte i = 0;
    atomic {
        do
        :: i < WRITERS -> aside[i] = OWN(i); running++; run Writer(i); i++
        :: else -> break
        od;
#ifdef READER
        running++; run Reader();
#endif
#ifdef EDITOR
        running++; run Renamer();
#endif
#ifdef TRUNCATES
        running++; run Truncater();
#endif
#ifdef APPENDS
        running++; run Appender();
#endif
        all_started = true;
        run Last()
    }
}
