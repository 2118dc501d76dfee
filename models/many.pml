/*
 * The commit of several files: disk/commit/{change_set,section,recovery}.py.
 *
 * Two files in two folders, each with its mutex and its note; folder 0 is the leader. WRITERS processes commit both
 * files at once; with SINGLE the last one commits only the file in folder 1, and so meets a member's note without
 * the leader's mutex. An editor saves the second file by rename (EDITOR). Up to CRASHES kills, between any two steps,
 * in the recovery too.
 *
 * Leases are as in commit.pml and not repeated: a version that is not settled is hidden while its writer lives. Not in
 * the model: a program that writes over one of the new versions after a kill, so that the others land too.
 * What is checked:
 *   - all or none: a commit that landed is in both files, one that did not is in neither;
 *   - no lost update, as in commit.pml;
 *   - nobody waits for ever (invalid end states): the mutexes are taken in one order.
 *
 * Mutations, each of which must be convicted: MUTATE_NO_NOTE, MUTATE_NO_MEMBER, MUTATE_NO_TAKE_BACK,
 * MUTATE_UNSORTED.
 */
#ifndef WRITERS
#define WRITERS 2
#endif
#ifndef CRASHES
#define CRASHES 1
#endif
#ifdef SINGLE
#define IS_SINGLE(p) ((p) == WRITERS - 1)
#else
#define IS_SINGLE(p) false
#endif

#define EDITOR_BIT WRITERS
#define BIT(n) (1 << (n))
#define OWN(p) ((p) + 1)
#define INODES (WRITERS + 2)
#define AT(f, i) ((f) * INODES + (i))            /* inodes of file f */
#define SWAP(f, p) ((f) * WRITERS + (p))
#define FREE 255
#define REMOVED 254

#define IDLE 0
#define PREPARING 1
#define SWAPPING 2
#define LANDED 3
#define RESTORING 4
#define MEMBER 5

byte target[2];
byte content[2 * INODES];
byte aside[2 * WRITERS];
bool unseen[2 * INODES];         /* by its write lease */
byte mutex[2] = FREE;

byte note[2] = IDLE;
byte note_by[2];
bool note_has[4];                /* note_has[2*n + f]: the record in note n names file f */
byte note_expected[4], note_new[4];

byte landed = 0, saved = 0, covered[2], kept[2];
bool has_crashed = false;
byte crashes = CRASHES, running = 0, started = 0;
bool all_started = false;

#define MAY_CRASH \
    if \
    :: atomic { crashes > 0 -> crashes--; has_crashed = true; \
        unseen[AT(0, OWN(p))] = false; unseen[AT(1, OWN(p))] = false; \
        if :: mutex[0] == p -> mutex[0] = FREE :: else fi; \
        if :: mutex[1] == p -> mutex[1] = FREE :: else fi; \
        goto dead } \
    :: skip \
    fi

#define TAKE(f) atomic { mutex[f] == FREE -> mutex[f] = p }
#define GIVE(f) if :: mutex[f] == p -> mutex[f] = FREE :: else fi

/* function: put_back. A recovery does the same */
inline put_back(f, by) {
    if
    :: target[f] != OWN(by) -> kept[f] = kept[f] | content[AT(f, aside[SWAP(f, by)])]
    :: else ->
        do
        :: atomic {
                MAY_CRASH;
                came = target[f]; target[f] = aside[SWAP(f, by)]; aside[SWAP(f, by)] = came;
                if      /* step: put-back */
                :: came == wanted -> break
                :: else -> wanted = target[f]    /* Somebody saved in between: that is newer, and goes back. */
                fi
            }
        od
    fi
}

/* One file of a cut-off commit, as found: function: _look */
#define WAS_SWAPPED(f) (aside[SWAP(f, gone)] != OWN(gone) && aside[SWAP(f, gone)] != REMOVED)
#define HAS_LANDED(f) (WAS_SWAPPED(f) && content[AT(f, aside[SWAP(f, gone)])] == note_expected[2 * n + f])

inline undo(f, n) {                 /* function: _undo */
    if
    :: WAS_SWAPPED(f) ->
        if
        :: content[AT(f, target[f])] == content[AT(f, aside[SWAP(f, gone)])] -> skip
        :: else ->
            atomic {
                if
                :: content[AT(f, aside[SWAP(f, gone)])] != note_expected[2 * n + f] ->
                    kept[f] = kept[f] | content[AT(f, aside[SWAP(f, gone)])]
                :: else
                fi
            };
            wanted = OWN(gone);
            put_back(f, gone)
        fi
    :: else                      /* function: _discard */
    fi
}

/* function: recover. The mutexes of all folders that note n names are held. */
inline recover(n) {
    gone = note_by[n];
    if
    :: note[n] == PREPARING ->
        /* Its own staged files are removed. */
        atomic { if :: aside[SWAP(n, gone)] == OWN(gone) -> aside[SWAP(n, gone)] = REMOVED :: else fi }
    :: note[n] == SWAPPING || note[n] == LANDED || note[n] == RESTORING ->
        is_all = (!note_has[2 * n] || HAS_LANDED(0)) && (!note_has[2 * n + 1] || HAS_LANDED(1));
        if
        :: note[n] == LANDED || (note[n] == SWAPPING && is_all) ->      /* function: _conclude */
            landed = landed | BIT(gone)
        :: else ->
            if :: note_has[2 * n] -> undo(0, n) :: else fi;
            atomic { MAY_CRASH; skip };
            if :: note_has[2 * n + 1] -> undo(1, n) :: else fi
        fi
    :: else
    fi;
    atomic { MAY_CRASH; note[n] = IDLE }
}

/* function: _recover. Of a section that has both mutexes */
inline recover_both() {
    if
    :: note[0] != IDLE && note[0] != MEMBER -> recover(0)
    :: else
    fi;
    if
    :: note[1] == MEMBER ->
        /* The leader was looked at just before. */
        atomic { MAY_CRASH; note[1] = IDLE }
    :: note[1] != IDLE && note[1] != MEMBER -> recover(1)
    :: else
    fi
}

inline exchange(f) {             /* functions: exchange, settle */
    atomic {
        MAY_CRASH;
        unseen[AT(f, OWN(p))] = true;
        aside[SWAP(f, p)] = target[f]; target[f] = OWN(p)             /* step: exchanged */
    };
    if
    :: content[AT(f, aside[SWAP(f, p)])] != expected[f] -> conflict = true           /* step: conflict */
    :: else                                      /* step: settled */
    fi
}

inline take_back(f) {            /* function: _take_back, restore */
    if
    :: aside[SWAP(f, p)] != OWN(p) ->
        /* step: restoring */
        atomic { MAY_CRASH; if :: IS_SINGLE(p) -> note[1] = RESTORING :: else -> note[0] = RESTORING fi };
        atomic { MAY_CRASH; skip };              /* step: set-ours-aside */
        /* step: copied-back */
        atomic {
            MAY_CRASH;
            content[AT(f, OWN(p))] = content[AT(f, aside[SWAP(f, p)])]; unseen[AT(f, OWN(p))] = false
        }
    :: else
    fi
}

proctype Writer(byte p) {
    byte expected[2], gone, wanted, came, found;
    bool is_all, conflict = false;

    atomic { (started == p) -> started++; found = target[0] };
    atomic { !unseen[AT(0, found)] -> expected[0] = content[AT(0, found)] };
    found = target[1];
    atomic { !unseen[AT(1, found)] -> expected[1] = content[AT(1, found)] };

    if                                           /* function: _take_mutexes */
    :: IS_SINGLE(p) ->
        TAKE(1);
        if
        :: note[1] == MEMBER ->                  /* function: _recover_wider */
            GIVE(1);
            TAKE(0); TAKE(1);
            recover_both();
            atomic { MAY_CRASH; GIVE(0) }
        :: note[1] != IDLE && note[1] != MEMBER -> recover(1)
        :: else
        fi
    :: else ->
#ifdef MUTATE_UNSORTED
        if
        :: p % 2 == 0 -> TAKE(0); TAKE(1)
        :: else -> TAKE(1); TAKE(0)
        fi;
#else
        TAKE(0); TAKE(1);
#endif
        recover_both()
    fi;

    if                                           /* function: prepare */
    :: !IS_SINGLE(p) -> atomic { MAY_CRASH; note[0] = PREPARING; note_by[0] = p }
    :: else
    fi;
    atomic { MAY_CRASH; note[1] = PREPARING; note_by[1] = p };
    atomic {                                     /* function: stage */
        MAY_CRASH;
        content[AT(0, OWN(p))] = expected[0] | BIT(p); content[AT(1, OWN(p))] = expected[1] | BIT(p)
    };
    /* function: verify */
    if
    :: (!IS_SINGLE(p) && content[AT(0, target[0])] != expected[0]) || content[AT(1, target[1])] != expected[1] ->
        goto leave
    :: else
    fi;

    if
    :: IS_SINGLE(p) ->
        atomic {                                 /* its own note, as in commit.pml */
            MAY_CRASH;
            note_has[2] = false; note_has[3] = true;
            note_expected[3] = expected[1]; note_new[3] = content[AT(1, OWN(p))]; note[1] = SWAPPING
        }
    :: else ->
#ifndef MUTATE_NO_NOTE
        atomic {                                 /* function: swap */
            MAY_CRASH;
            note_has[0] = true; note_has[1] = true;
            note_expected[0] = expected[0]; note_expected[1] = expected[1];
            note_new[0] = content[AT(0, OWN(p))]; note_new[1] = content[AT(1, OWN(p))];
            note[0] = SWAPPING
        };
#ifndef MUTATE_NO_MEMBER
        atomic { MAY_CRASH; note[1] = MEMBER };  /* function: join, step: noted */
#endif
#ifdef MUTATE_NO_MEMBER
        note[1] = IDLE;
#endif
#else
        skip
#endif
    fi;

    if :: !IS_SINGLE(p) -> exchange(0) :: else fi;                    /* step: one-visible */
    if :: !conflict -> exchange(1) :: else fi;
    if
    :: conflict ->
#ifndef MUTATE_NO_TAKE_BACK
        take_back(1);
        if :: !IS_SINGLE(p) -> take_back(0) :: else fi
#endif
    :: else ->
        /* The commit point. steps: all-visible, decided */
        if
        :: !IS_SINGLE(p) -> atomic { MAY_CRASH; note[0] = LANDED; landed = landed | BIT(p) }
        :: else -> atomic { MAY_CRASH; landed = landed | BIT(p) }
        fi;
        atomic { MAY_CRASH; unseen[AT(0, OWN(p))] = false };           /* step: released */
        atomic { MAY_CRASH; unseen[AT(1, OWN(p))] = false }
    fi;

leave:                                           /* function: conclude: the leader's note first */
    atomic { unseen[AT(0, OWN(p))] = false; unseen[AT(1, OWN(p))] = false };
    if :: !IS_SINGLE(p) -> atomic { MAY_CRASH; note[0] = IDLE } :: else fi;
    atomic { MAY_CRASH; note[1] = IDLE };
    GIVE(1);
    GIVE(0);
dead:
    running--
}

#ifdef EDITOR
proctype Editor() {
    byte found, read;
    found = target[1];
    atomic { !unseen[AT(1, found)] -> read = content[AT(1, found)] };
    content[AT(1, OWN(WRITERS))] = read | BIT(EDITOR_BIT);
    atomic {
        covered[1] = covered[1] | content[AT(1, target[1])];
        /* In the middle of a commit, it covers what that commit displaced as well. */
        if
        :: unseen[AT(1, target[1])] ->
            covered[1] = covered[1] | content[AT(1, aside[SWAP(1, target[1] - 1)])]
        :: else
        fi;
        target[1] = OWN(WRITERS);
        saved = saved | BIT(EDITOR_BIT)
    };
    running--
}
#endif

/* The next call, when everybody is done. */
proctype Last() {
    byte p = WRITERS, gone, wanted, came, both, now0, now1;
    bool is_all;

    (all_started && running == 0);
    crashes = 0;
    TAKE(0); TAKE(1);
    recover_both();
    GIVE(1); GIVE(0);
    now0 = content[AT(0, target[0])]; now1 = content[AT(1, target[1])];
    p = 0;
    do
    :: p < WRITERS ->
        if
        :: landed & BIT(p) ->
            assert(IS_SINGLE(p) || (now0 & BIT(p)) != 0);
            assert(((now1 | covered[1]) & BIT(p)) != 0)
        :: else ->
            assert((now0 & BIT(p)) == 0);
            assert((now1 & BIT(p)) == 0 || (covered[1] & BIT(p)) != 0)
        fi;
        p++
    :: else -> break
    od;
    assert((saved & ~(now1 | (has_crashed -> kept[1] : 0))) == 0);
dead:
    skip
}

init {
    byte i = 0;
    atomic {
        do
        :: i < WRITERS ->
            aside[SWAP(0, i)] = OWN(i); aside[SWAP(1, i)] = OWN(i);
            running++; run Writer(i); i++
        :: else -> break
        od;
#ifdef EDITOR
        running++; run Editor();
#endif
        all_started = true;
        run Last()
    }
}
