/*
 * The lock of a folder: lock/{file_arbiter,lock_file,liveness}.py.
 *
 * PROCESSES processes, each of which takes the lock (or takes it over), may renew it, writes under it, and releases
 * it; a clock that lets leases run out; and up to CRASHES kills, between any two steps. An outsider may damage the
 * lock file once (OUTSIDER).
 *
 * A record is a number: its process, and how often it was renewed. `.lock.take.<id>` is one bid per record.
 * What is checked:
 *   - never two holders whose leases both run;
 *   - a write under the lock never happens after a take-over;
 *   - no stuck lock: at the end one more process can take it;
 *   - nobody waits for ever (invalid end states).
 *
 * NO_FLOCK is the same on a filesystem whose mutex excludes nobody: then the bids arbitrate alone, and writes
 * are not fenced (so they are not checked). There a bidder is not stopped for longer than its own lease, and a
 * release is over before the lease is: without that, three processes can end as two holders (a release so late that
 * its bid is broken removes the lock between the breaker's look and its rename). With a mutex both may happen.
 *
 * Mutations, each of which must be convicted: MUTATE_NO_BID (with NO_FLOCK), MUTATE_NO_LOOK_UNDER_BID (with
 * NO_FLOCK), MUTATE_ID_ONLY (with NO_FLOCK), MUTATE_NO_FENCE, MUTATE_CREATE_BY_RENAME (with NO_FLOCK),
 * MUTATE_NO_BREAKING.
 */
#ifndef PROCESSES
#define PROCESSES 2
#endif
#ifndef CRASHES
#define CRASHES 1
#endif

#define NONE 0
#define DAMAGED 31
#define RECORD(p, renewals) ((p) * 2 + 1 + (renewals))     /* renewals: 0 or 1 */
#define OWNER(record) (((record) - 1) / 2)
#define KEY(record) ((record) == DAMAGED -> PROCESSES + 1 : OWNER(record))
#define RECORDS (2 * (PROCESSES + 2))
#define FREE 255

byte lock = NONE;
byte bid[PROCESSES + 2];         /* a bid on the record with this key; its content is a record itself */
byte inner[PROCESSES + 2];       /* a bid on that bid */
bool expired[32];                /* records whose lease has run out */
bool dead[PROCESSES + 1];        /* processes that were killed, or have ended */
bool holds[PROCESSES + 1];       /* believes that it holds the lock */
byte current[PROCESSES + 1];     /* with which record */
byte mutex = FREE;
byte crashes = CRASHES;
byte running = 0, started = 0;
bool all_started = false;
bool is_releasing[PROCESSES + 1];
bool is_last = false;
bool was_damaged = false;        /* Whoever damages a lock file gives it away; it must not stay stuck. */

/* function: judge. Anybody may take it over. */
#define ORPHAN(record) ((record) == DAMAGED || expired[record] || dead[OWNER(record)])

/* A renewed record that has run out says the same of the one before. */
#define LEASE_RUNS(q) (holds[q] && !expired[current[q]] && !expired[RECORD(q, 1)])

#ifdef NO_FLOCK
#define TAKE_MUTEX skip
#define GIVE_MUTEX skip
#else
#define TAKE_MUTEX atomic { mutex == FREE -> mutex = p }
#define GIVE_MUTEX mutex = FREE
#endif

#define MAY_CRASH \
    if \
    :: atomic { crashes > 0 -> crashes--; dead[p] = true; holds[p] = false; \
        if :: mutex == p -> mutex = FREE :: else fi; goto ended } \
    :: skip \
    fi

/* function: _bid. Publishes `record` as the bid on what has the key `key`; is_bid says whether it is ours. */
inline bid_it(key, record) {
    is_bid = false;
    do
    :: true ->
        if :: lock == NONE || KEY(lock) != key -> break :: else fi;
#ifdef MUTATE_NO_BID
        is_bid = true; break;
#endif
        atomic {
            MAY_CRASH;
            if
            :: bid[key] == NONE ->               /* function: _publish, step: lock-bid */
                bid[key] = record; is_bid = true; break
            :: else -> rival = bid[key]
            fi
        };
#ifdef MUTATE_NO_BREAKING
        break;
#endif
        if
        :: !ORPHAN(rival) -> break               /* may_break says no */
        :: else ->
            /* The bidder was killed: its bid is broken under a bid on it. */
            if :: bid[key] != rival -> goto again :: else fi;
            atomic {
                MAY_CRASH;
                if
                :: inner[key] == NONE -> inner[key] = record
                :: inner[key] != NONE && ORPHAN(inner[key]) -> inner[key] = record   /* one level deeper, as one step */
                :: else -> break
                fi
            };
            if                                   /* function: _finish. Of the bid on the bid. */
            :: bid[key] != rival -> inner[key] = NONE
            :: else ->
                atomic { MAY_CRASH; bid[key] = inner[key]; inner[key] = NONE };
                if :: bid[key] == record -> is_bid = true; break :: else fi
            fi
        fi
again:  skip
    od
}

/* function: _finish. Under the bid: look again, then rename the bid over the lock. `judged` 0: only the id counts. */
inline finish_it(key, record, judged) {
    did = false;
    if
#ifndef MUTATE_NO_LOOK_UNDER_BID
    :: lock == NONE || KEY(lock) != key || (judged != 0 && lock != judged) ->
        bid[key] = NONE
#endif
    :: else ->                                   /* step: lock-verified */
        atomic {
            MAY_CRASH;
#ifdef MUTATE_NO_BID
            lock = record;
#else
            if :: bid[key] != NONE -> lock = bid[key]; bid[key] = NONE :: else fi;
#endif
        };
        did = (lock == record)                   /* step: lock-replaced */
    fi
}

/* function: remove. An owner's release: the lock file itself becomes the bid. */
inline remove_it(record) {
    did = false;
    atomic {
        MAY_CRASH;
        if
        :: lock == NONE || bid[OWNER(record)] != NONE -> linked = false
        :: else -> linked = true; bid[OWNER(record)] = lock
        fi
    };
    if
    :: linked ->
        did = (KEY(bid[OWNER(record)]) == OWNER(record));
    :: else ->
        bid_it(OWNER(record), record);
        if
        :: is_bid -> did = (lock != NONE && KEY(lock) == OWNER(record)); linked = true
        :: else
        fi
    fi;
    if
    :: linked ->
        /* step: lock-release-bid */
        if :: did -> atomic { MAY_CRASH; lock = NONE } :: else fi;       /* step: lock-removed */
        atomic { MAY_CRASH; bid[OWNER(record)] = NONE }
    :: else
    fi
}

inline begin_holding() {
    atomic {
        holds[p] = true; current[p] = mine;
        other = 0;
        do      /* Never two holders whose leases both run. */
        :: other <= PROCESSES ->
            assert(was_damaged || other == p || !LEASE_RUNS(other) || !LEASE_RUNS(p));
            other++
        :: else -> break
        od
    }
}

proctype Process(byte p) {
    byte found, rival, mine, other;
    bool is_bid, did, linked;

    atomic { (is_last || started == p) -> started++; mine = RECORD(p, 0) };

    /* function: _take */
    found = lock;                                /* refused without the mutex, if it is live */
    if :: found != NONE && !ORPHAN(found) -> goto ended :: else fi;      /* step: lock-looked */
    TAKE_MUTEX;                                  /* function: section, step: lock-entered */
    found = lock;
    if
    :: found == NONE ->
        atomic {
            MAY_CRASH;
            if                                   /* function: create */
#ifdef MUTATE_CREATE_BY_RENAME
            :: true -> lock = mine; did = true
#else
            :: lock == NONE -> lock = mine; did = true
            :: else -> did = false
#endif
            fi
        }
    :: else ->
        if :: !ORPHAN(found) -> did = false; goto refused :: else fi;
        bid_it(KEY(found), mine);                /* function: replace */
        if
        :: is_bid ->
#ifdef MUTATE_ID_ONLY
            finish_it(KEY(found), mine, 0)
#else
            finish_it(KEY(found), mine, found)
#endif
        :: else -> did = false
        fi
    fi;
    if :: did -> begin_holding() :: else fi;     /* step: lock-published */
refused:
    GIVE_MUTEX;
    if :: !did -> goto ended :: else fi;
    atomic { MAY_CRASH; skip };

    if
    :: true ->                                   /* function: renew */
        TAKE_MUTEX;
        found = lock;
        if
        :: found != NONE && KEY(found) == p ->
            bid_it(p, RECORD(p, 1));
            if
            :: is_bid ->
                finish_it(p, RECORD(p, 1), 0);
                if
                :: did -> mine = RECORD(p, 1); begin_holding()
                :: else -> holds[p] = false
                fi
            :: else -> holds[p] = false
            fi
        :: else -> holds[p] = false
        fi;
        GIVE_MUTEX;
        if :: !holds[p] -> goto ended :: else fi
    :: true -> skip
    fi;

#ifndef NO_FLOCK
    /* A guarded write, between begin and settle. */
    TAKE_MUTEX;                                  /* function: begin */
    if
    :: lock == NONE || KEY(lock) != p -> holds[p] = false; GIVE_MUTEX; goto ended    /* function: admit */
    :: else
    fi;
#ifdef MUTATE_NO_FENCE
    GIVE_MUTEX;                                  /* The check, and then the write without the mutex. */
#endif
    atomic { MAY_CRASH; assert(lock == DAMAGED || (lock != NONE && KEY(lock) == p)) };                    /* The write. */
#ifndef MUTATE_NO_FENCE
    GIVE_MUTEX;                                  /* function: settle */
#endif
#endif

#ifdef NO_FLOCK
    atomic { if :: expired[mine] -> goto ended :: else -> is_releasing[p] = true fi };
#endif
    TAKE_MUTEX;                                  /* function: give_up */
    holds[p] = false;
    if
    :: mine == RECORD(p, 0) && lock == mine && !expired[mine] ->
        atomic { MAY_CRASH; skip };              /* function: remove_undisputed, step: lock-undisputed */
        atomic { MAY_CRASH; lock = NONE }
    :: true -> remove_it(mine)
    fi;
    GIVE_MUTEX;
ended:
    atomic {
        dead[p] = true; holds[p] = false;
        if :: !is_last -> running-- :: else -> assert(current[p] != NONE) fi
    }
}

/* Leases run out: of the record in the lock file, at any time; with a mutex, of a bid too. */
proctype Clock() {
    byte record;
    do
    :: atomic { lock != NONE && lock != DAMAGED && !expired[lock] && !is_releasing[OWNER(lock)] -> expired[lock] = true }
#ifndef NO_FLOCK
    :: atomic { bid[0] != NONE && bid[0] != DAMAGED && !expired[bid[0]] -> expired[bid[0]] = true }
#endif
    :: running == 0 -> break
    od
}

#ifdef OUTSIDER
/* Somebody writes over the lock file. */
proctype Outsider() {
    atomic { if :: lock != NONE -> lock = DAMAGED; was_damaged = true :: true -> skip fi; running-- }
}
#endif

/* One more process, when everybody is done: it must get the lock, whatever they left. */
proctype Last() {
    atomic {
        (all_started && running == 0) ->
        crashes = 0; mutex == FREE; is_last = true;
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
#ifdef OUTSIDER
        running++; run Outsider();
#endif
        all_started = true;
        run Clock();
        run Last()
    }
}
