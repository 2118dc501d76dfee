/*
 * Locks inside and above each other (ruling 24): lock/{nested,file_arbiter}.py.
 *
 * Two folders, one inside the other, each with its mutex and its lock. PROCESSES processes, each of which takes the
 * lock of one of them, whichever, and releases it; up to CRASHES kills, between any two steps. What happens to one
 * lock among those who want the same folder is in lock.pml: here taking it is one step under its mutex, and a dead
 * process's lock is free.
 *
 * What is checked:
 *   - never two holders, of the same folder or of one inside the other;
 *   - without a kill somebody gets a lock: not all of them refuse each other;
 *   - no stuck lock: at the end one more process takes the outer one;
 *   - nobody waits for ever (invalid end states).
 *
 * Mutations, each of which must be convicted: MUTATE_NO_SECOND_LOOK, MUTATE_LOOK_THEN_PUBLISH, MUTATE_NO_WAIT_BELOW,
 * MUTATE_WAIT_ABOVE.
 */
#ifndef PROCESSES
#define PROCESSES 2
#endif
#ifndef CRASHES
#define CRASHES 1
#endif

#define OUTER 0
#define INNER 1
#define OTHER(f) (1 - (f))
#define NOBODY 255
#define FREE 255

byte lock[2] = NOBODY;           /* whose record is there */
byte mutex[2] = FREE;
bool dead[PROCESSES + 1];
bool holds[PROCESSES + 1];
byte crashes = CRASHES, running = 0;
bool all_started = false, is_last = false, has_crashed = false;
byte won = 0;

#define IS_LIVE(f) (lock[f] != NOBODY && !dead[lock[f]])

#define MAY_CRASH \
    if \
    :: atomic { crashes > 0 && !is_last -> crashes--; has_crashed = true; dead[p] = true; holds[p] = false; \
        if :: mutex[0] == p -> mutex[0] = FREE :: else fi; \
        if :: mutex[1] == p -> mutex[1] = FREE :: else fi; \
        goto ended } \
    :: skip \
    fi

#define TAKE(f) atomic { mutex[f] == FREE -> mutex[f] = p }
#define GIVE(f) mutex[f] = FREE

/* function: find_obstacle. Before it is published: look, and do not wait. */
inline look_before() {
    obstacle = IS_LIVE(OTHER(mine))              /* functions: _locked_above, _locked_below */
}

/* function: find_obstacle. With our own record in place. */
inline look_again() {
    obstacle = IS_LIVE(OTHER(mine)) && lock[OTHER(mine)] != p;
#ifndef MUTATE_NO_WAIT_BELOW
    if
#ifdef MUTATE_WAIT_ABOVE
    :: obstacle ->
#else
    :: obstacle && mine == OUTER ->              /* function: _look_in_section */
#endif
        TAKE(OTHER(mine));
        atomic { MAY_CRASH; obstacle = IS_LIVE(OTHER(mine)) };
        GIVE(OTHER(mine))
    :: else
    fi
#endif
}

proctype Process(byte p) {
    byte mine, other;
    bool obstacle;

    if
    :: is_last -> mine = OUTER
    :: !is_last -> mine = OUTER
    :: !is_last -> mine = INNER
    fi;

    /* function: _take */
    look_before();
    if :: obstacle || IS_LIVE(mine) -> goto ended :: else fi;
    atomic { MAY_CRASH; skip };                  /* step: lock-looked */
    TAKE(mine);                                  /* step: lock-entered */
    if :: IS_LIVE(mine) -> GIVE(mine); goto ended :: else fi;
#ifdef MUTATE_LOOK_THEN_PUBLISH
    look_again();
    atomic { MAY_CRASH; if :: !obstacle -> lock[mine] = p :: else fi };
#else
    atomic { MAY_CRASH; lock[mine] = p };        /* step: lock-published */
#ifdef MUTATE_NO_SECOND_LOOK
    obstacle = false;
#else
    look_again();
#endif
#endif
    if
    :: obstacle ->                               /* function: _withdraw */
        atomic { MAY_CRASH; if :: lock[mine] == p -> lock[mine] = NOBODY :: else fi };
        GIVE(mine);
        goto ended
    :: else
    fi;
    atomic {                                     /* step: lock-looked-again */
        MAY_CRASH;
        holds[p] = true; won++;
        other = 0;
        do
        :: other <= PROCESSES -> assert(other == p || !holds[other]); other++
        :: else -> break
        od
    };
    GIVE(mine);
    atomic { MAY_CRASH; skip };

    TAKE(mine);                                  /* function: give_up */
    atomic { MAY_CRASH; holds[p] = false; lock[mine] = NOBODY };
    GIVE(mine);
ended:
    atomic {
        if
        :: is_last -> assert(won > 0); assert(mutex[0] == FREE && mutex[1] == FREE)
        :: else -> running--
        fi
    }
}

/* One more process, when everybody is done: it must get the outer lock, whatever they left. */
proctype Last() {
    atomic {
        (all_started && running == 0) ->
        assert(has_crashed || won > 0);
        is_last = true; won = 0;
        run Process(PROCESSES)
    }
}

init {
    byte i = 0;
    atomic {
        do
        :: i < PROCESSES -> running++; run Process(i); i++
        :: else -> break
        od;
        all_started = true;
        run Last()
    }
}
