/*
 * Crane's consensus (paxos/core/core.hpp) for three replicas, to be checked by spin. README.md has how to run it, the
 * table of what corresponds to what, and what is left out.
 *
 * How to read it. Every action of a replica is one inline below, named like the function of paxos/ it stands for;
 * Replica() at the end lists when each may happen. There is no time: whatever a timeout may do can happen at any
 * moment, so pre-vote and the lease, which only make view changes rarer, are left out.
 *
 * The network keeps everything that was ever sent, and anything in it may be received at any moment, again and
 * again, or never: loss, duplication, delay and reordering. A view's leader only ever adds to its log, so all its
 * Prepares together are that log as far as it was sent (View.log); a later acknowledgement says all that an earlier
 * one of the same view says, so the last one is kept (View.acked). Both are read in parts: see on_prepare(),
 * advance_commit().
 *
 * A view number here is the rank of a <counter, leader> pair among those ever used: whoever starts view k first is
 * its owner, for nobody else can have the same pair.
 */
#ifndef VIEWS
#define VIEWS 3
#endif
#ifndef VALUES
#define VALUES 1
#endif
#define LEN (VIEWS + VALUES) /* no log can be longer; at most 5, see below */
#define N 3
#define NOBODY 3
/* Planted bugs, one at a time: spin -DBUG=FORGET_VIEW. */
#define ACK_BEFORE_PERSIST 1
#define VOTE_BEFORE_PERSIST 2
#define FORGET_VIEW 3          /* on restart, the view of the last entry is taken for the promised one */
#define COUNT_OWN_VOTE_TWICE 4
#define COUNT_UNSYNCED 5       /* the leader's own write counts before it is on disk */
#define TRUNCATE_COMMITTED 6   /* a late Prepare cuts off what follows its entries */
#define ELECT_OLDER_LOG 7
#define ELECT_LONGER_LOG 8     /* the longer log wins, not the one with the later view */
#define COMMIT_OLD_VIEW 9      /* entries of former views are counted, not only decided with one of the own */
#define KEEP_MATCHED 10        /* over a change of view */
#define RESTART_MATCHED 11     /* matched is the log's end whatever leader it came from */
#define NO_MATCHING 12         /* a Prepare is taken without a look at the entry before it */
#define REJOIN_EARLY 13        /* see lose_disk() */
#ifndef BUG
#define BUG 0
#endif
#define majority(n) ((n) >= 2)
#define min(a, b) ((a) < (b) -> (a) : (b))
#define max(a, b) ((a) > (b) -> (a) : (b))
#define bit(r) (1 << (r))
#define when(condition, ...) if :: condition -> __VA_ARGS__ :: else fi

/* A log is an int of 5 bits per entry, from index 1 on: three for the view, two for the value (0 is NewView). Nothing
 * is 0, and is what lies before and behind a log. */
#define entry(view, value) ((view) << 2 | (value))
#define at(log, x) ((log) << 5 >> 5 * (x) & 31)
#define view_at(log, x) (at(log, x) >> 2)
#define put(log, x, e) log = log | (e) << 5 * ((x) - 1)
#define log_view(r) view_at(rep[r].log, rep[r].last)
#define cut(log, x) ((log) & (1 << 5 * ((x) - 1)) - 1) /* from index x on */

mtype = { Follower, Candidate, Leader };

/* Core: memory, and below it what is on disk (PersistBatch, StoredState). */
typedef ReplicaState {
    mtype role = Follower;
    bool dirty;              /* memory has what the disk has not: Core::take_outbox() would give a persist */
    unsigned view : 3;       /* view_: nothing below is accepted */
    unsigned last : 3;       /* log_.last_index() */
    unsigned matched : 3;    /* matched_: the log is the leader's up to here */
    unsigned commit : 3;     /* commit_ */
    unsigned disk_view : 3;
    unsigned disk_last : 3;  /* durable_ */
    bool rejoining;          /* on disk, too; see lose_disk() */
    int log;
    int disk;
};
ReplicaState rep[N];

/* The network: what was sent in a view, by its owner and to it. */
typedef ViewMessages {
    unsigned owner : 2 = NOBODY;
    bool asked;              /* ViewChange, with where the candidate's log ends */
    unsigned ask_index : 3;
    unsigned ask_view : 3;
    unsigned votes : 3;      /* ViewChangeReply ok: set of replicas */
    unsigned sent : 3;       /* last index in a Prepare */
    unsigned commit : 3;     /* greatest in Prepare and Commit */
    int log;                 /* Prepares */
    byte acked[N];           /* greatest index in an Ack ok */
    unsigned old : 3;        /* what was sent before a disk was lost */
};
ViewMessages net[VIEWS + 1]; /* [0] unused */
#define current net[rep[me].view]

byte proposed;               /* values handed to propose() so far: each is another one */
byte spoke[N];               /* ghost: the highest view in which a replica said something */
int decided;                 /* ghost: what was first decided at an index, as a log */
int decided_in;              /* ghost: by the leader of this view */
bool lost;                   /* a disk was lost: once is enough */
byte j, s;                   /* scratch within one step */

/* --- what must hold -------------------------------------------------------------------------------------- */

/* At most one value per index; a replica takes for decided only what is. */
inline check_decided(me) {
    for (j : 1 .. rep[me].commit) {
        assert(at(rep[me].log, j) != 0);
        if
        :: at(decided, j) == 0 ->
            assert(rep[me].role == Leader);
            put(decided, j, at(rep[me].log, j));
            put(decided_in, j, rep[me].view)
        :: else -> assert(at(decided, j) == at(rep[me].log, j))
        fi
    }
}

/* Acknowledged is durable on a majority, and stays so: committed is never lost. */
#define on_disk(r, x) (at(rep[r].disk, x) == at(decided, x))
inline check_durable() {
    for (j : 1 .. LEN) {
        assert(at(decided, j) == 0 || lost || majority(on_disk(0, j) + on_disk(1, j) + on_disk(2, j)))
    }
}

/* Log matching: logs that agree on the view of an entry agree on it and on all before it. */
inline check_matching(me) {
    for (s : 0 .. N - 1) {
        for (j : 1 .. LEN) {
            assert(at(rep[me].log, j) == 0 || view_at(rep[me].log, j) != view_at(rep[s].log, j) ||
                   cut(rep[me].log, j + 1) == cut(rep[s].log, j + 1))
        }
    }
}

/* Views are monotone: a replica is never below a view in which it has said something. */
inline check_views(me) { assert(rep[me].disk_view >= spoke[me]) }

/* A new leader has all that was decided in views before its own. (It may be late, and its view long over.) */
inline check_complete(me) {
    for (j : 1 .. LEN) {
        assert(at(decided, j) == 0 || at(decided_in, j) >= rep[me].view || at(decided, j) == at(rep[me].log, j))
    }
}

/* --- the network ----------------------------------------------------------------------------------------- */

/* Messages that nobody will ever look at again are dropped: that saves states, and is all this is for. */
#define in_role(k, wanted) \
    (net[k].owner != NOBODY && rep[net[k].owner].view == k && rep[net[k].owner].role == wanted)
#ifdef LOST_DISK
#define deaf(r, k) false /* not for good */
#else
#define deaf(r, k) (rep[r].disk_view > k || (net[k].owner == r && rep[r].disk_view == k))
#endif
inline drop_unheard() {
    for (j : 1 .. VIEWS) {
        when(!in_role(j, Candidate), net[j].votes = 0);
        when(!in_role(j, Leader), net[j].acked[0] = 0; net[j].acked[1] = 0; net[j].acked[2] = 0);
        when(net[j].owner != NOBODY && deaf(0, j) && deaf(1, j) && deaf(2, j),
            net[j].asked = false; net[j].ask_index = 0; net[j].ask_view = 0;
            net[j].sent = 0; net[j].commit = 0; net[j].log = 0)
    }
}

/* Core::check_return(): a rejoining replica votes again once it knows that an entry is decided that was proposed since
 * the disk was lost, and without its own Ack being counted. The core has a Return entry for it; here any entry will do. */
#define counted(me) (!rep[me].rejoining || BUG == REJOIN_EARLY)
#define since(k, x) ((k) != 0 && (x) > net[k].old)
#define may_rejoin(me, k) (rep[me].rejoining && rep[me].commit > 0 && rep[me].commit <= net[k].commit && \
    (BUG == REJOIN_EARLY -> view_at(rep[me].log, rep[me].commit) == k : \
        since(view_at(rep[me].log, rep[me].commit), rep[me].commit)))

/* --- parts of actions ------------------------------------------------------------------------------------ */

/* Core::become_follower(), and the same lines of start_view_change() */
inline enter_view(me, k, new_role) {
    assert(k >= rep[me].view && (k > rep[me].view || rep[me].role != Leader));
    rep[me].role = new_role;
    when(k > rep[me].view,
        rep[me].view = k;
        rep[me].matched = (BUG == KEEP_MATCHED -> rep[me].matched : rep[me].commit);
        rep[me].dirty = true)
}

/* Core::append() and, as a leader's Prepare is in Outbox::send_now, Core::send_entries() */
inline append_and_send(me, value) {
    rep[me].last++;
    put(rep[me].log, rep[me].last, entry(rep[me].view, value));
    rep[me].dirty = true;
    current.log = rep[me].log;
    current.sent = rep[me].last;
    current.commit = rep[me].commit;
    spoke[me] = rep[me].view;
    check_matching(me)
}

/* Core::fill_replies() with a ViewChangeReply: as it may be asked again, it is sent as long as the view lasts. */
inline send_vote(me) {
    when(current.asked && current.owner != me,
        current.votes = current.votes | bit(me);
        spoke[me] = rep[me].view)
}

/* Core::fill_replies() with an Ack. Before the leader was heard, matched is commit, which says nothing new. */
inline send_ack(me) {
    when(current.owner != me && counted(me),
        current.acked[me] = max(current.acked[me], rep[me].matched);
        spoke[me] = rep[me].view)
}

/* --- actions --------------------------------------------------------------------------------------------- */

/* Core::start_view_change(), after a timeout, a won pre-vote or a TakeOver */
inline start_view_change(me, k) {
    enter_view(me, k, Candidate);
    net[k].owner = me
}

/* Core::on_vote_request() with a ViewChange for a higher view and a log that is at least as complete */
inline on_vote_request(me, k) {
    enter_view(me, k, Follower);
    when(BUG == VOTE_BEFORE_PERSIST, send_vote(me))
}

/* Core::count_votes(), become_leader() */
inline become_leader(me) {
    rep[me].role = Leader;
    check_complete(me);
    append_and_send(me, 0)
}

/* Core::propose() */
inline propose(me) {
    proposed++;
    append_and_send(me, proposed)
}

/* Core::accept_leader(), on_prepare() with the entry at index x of view k. More entries in one Prepare are the same
 * as one after the other, with fewer moments to crash at. */
inline on_prepare(me, k, x) {
    enter_view(me, k, Follower);
    if
    :: x > rep[me].commit && view_at(rep[me].log, x) != view_at(net[k].log, x) ->
        rep[me].log = cut(rep[me].log, x); /* LogWindow::truncate_from() */
        put(rep[me].log, x, at(net[k].log, x));
        rep[me].last = x;
        rep[me].dirty = true;
        check_matching(me)
    :: else ->
        when(BUG == TRUNCATE_COMMITTED && rep[me].last > x,
            rep[me].log = cut(rep[me].log, x + 1);
            rep[me].last = x;
            rep[me].dirty = true)
    fi;
    rep[me].matched = max(rep[me].matched, max(rep[me].commit, x));
    when(!rep[me].dirty || BUG == ACK_BEFORE_PERSIST, send_ack(me))
}

/* Core::accept_leader(), on_commit(), learn_commit(); the commit index of a Prepare comes this way, too */
inline on_commit(me, k) {
    enter_view(me, k, Follower);
    when(rep[me].commit < min(net[k].commit, rep[me].matched), rep[me].commit++; check_decided(me));
    when(may_rejoin(me, k), rep[me].rejoining = false)
}

/* Core::on_ack(), advance_commit(): those Acks are received that let index x be decided. Then send_commit(). */
inline advance_commit(me, x) {
    rep[me].commit = x;
    current.commit = x;
#ifdef GOAL
    assert(x < LEN); /* fails: everything can be decided */
#endif
    check_decided(me);
    check_durable()
}

/* BdbStore::persist() of Core::fill_persist(), Core::persisted(), then Outbox::send_after */
inline persist(me) {
    rep[me].dirty = false;
    rep[me].disk_view = rep[me].view;
    rep[me].disk_last = rep[me].last;
    rep[me].disk = rep[me].log;
    if
    :: rep[me].role == Candidate -> /* Core::ask_for_votes() */
        current.asked = true;
        current.ask_index = rep[me].last;
        current.ask_view = log_view(me);
        spoke[me] = rep[me].view
    :: else
    fi;
    send_vote(me);
    send_ack(me);
    check_durable();
    check_views(me)
}

/* Nobody ever heard of a view that its owner had not yet put on disk. */
inline disown(me) {
    when(rep[me].disk_view < rep[me].view && current.owner == me, current.owner = NOBODY)
}

/* The process dies, at any moment before, between or after persists, and comes back: BdbStore::load(), Core::Core().
 * The commit index is stored when convenient, so it may be there or not. */
inline crash_and_restart(me, stored_commit) {
    disown(me);
    rep[me].disk_view = (BUG == FORGET_VIEW -> view_at(rep[me].disk, rep[me].disk_last) : rep[me].disk_view);
    rep[me].role = Follower;
    rep[me].dirty = false;
    rep[me].view = rep[me].disk_view;
    rep[me].last = rep[me].disk_last;
    rep[me].log = rep[me].disk;
    rep[me].commit = min(stored_commit, rep[me].last);
    rep[me].matched = (log_view(me) == rep[me].view || BUG == RESTART_MATCHED -> rep[me].last : rep[me].commit);
    check_views(me)
}

/* With LOST_DISK: the database is gone, and with it promises and acknowledgements. The replica starts again with
 * NodeConfig::rejoin. REJOIN_EARLY is the rule that the core had first: README.md, "Found". */
inline lose_disk(me) {
    disown(me);
    lost = true;
    spoke[me] = 0;
    rep[me].role = Follower; rep[me].dirty = false; rep[me].rejoining = true;
    rep[me].view = 0; rep[me].last = 0; rep[me].log = 0; rep[me].matched = 0; rep[me].commit = 0;
    rep[me].disk_view = 0; rep[me].disk_last = 0; rep[me].disk = 0;
    for (j : 1 .. VIEWS) { net[j].old = net[j].sent }
}

/* --- when they may happen -------------------------------------------------------------------------------- */

/* Replicas are alike: let the first to move be 0 and the next one 1. */
#define awake(me) (me == 0 || rep[me - 1].view > 0 || lost)
/* Only a leader acts on before its persist. What others do before theirs nobody sees, so the rest may as well wait. */
#define quiet(me) (awake(me) && !rep[me].dirty)
#define unseen(r) (rep[r].dirty && rep[r].role != Leader)
#define calm(me) ((me == 0 || !unseen(0)) && (me == 1 || !unseen(1)) && (me == 2 || !unseen(2)))

#define may_start(me, k) (quiet(me) && !rep[me].rejoining && k > rep[me].view && \
    (net[k].owner == NOBODY || net[k].owner == me))

#define complete(me, k) (BUG == ELECT_OLDER_LOG || (net[k].ask_view > log_view(me) && BUG != ELECT_LONGER_LOG) || \
    ((net[k].ask_view == log_view(me) || BUG == ELECT_LONGER_LOG) && net[k].ask_index >= rep[me].last))
#define may_promise(me, k) (quiet(me) && !rep[me].rejoining && net[k].asked && k > rep[me].view && complete(me, k))

#define votes_of(k) \
    (1 + (BUG == COUNT_OWN_VOTE_TWICE) + (net[k].votes & 1) + (net[k].votes >> 1 & 1) + (net[k].votes >> 2))
#define may_lead(me) (rep[me].role == Candidate && !rep[me].dirty && rep[me].last < LEN && \
    majority(votes_of(rep[me].view)))

#define may_propose(me) (rep[me].role == Leader && proposed < VALUES && rep[me].last < LEN)

#define from_leader(me, k) (quiet(me) && net[k].sent > 0 && net[k].owner != me && k >= rep[me].view)
#define fits(me, k, x) (x - 1 <= rep[me].last && (x - 1 <= rep[me].commit || BUG == NO_MATCHING || \
    view_at(rep[me].log, x - 1) == view_at(net[k].log, x - 1)))
#define may_prepare(me, k, x) (from_leader(me, k) && x <= net[k].sent && fits(me, k, x))
#define may_learn(me, k) (from_leader(me, k) && \
    (k > rep[me].view || rep[me].commit < min(net[k].commit, rep[me].matched) || may_rejoin(me, k)))

#define holders(me, v, x) ((rep[me].disk_last >= x || BUG == COUNT_UNSYNCED) + \
    (net[v].acked[0] >= x) + (net[v].acked[1] >= x) + (net[v].acked[2] >= x))
#define may_commit(me, x) (rep[me].role == Leader && x > rep[me].commit && x <= rep[me].last && \
    (view_at(rep[me].log, x) == rep[me].view || BUG == COMMIT_OLD_VIEW) && majority(holders(me, rep[me].view, x)))

/* The printf makes spin -t readable. */
#define step(guard, action) \
    :: d_step { \
        calm(me) && guard -> \
        printf("%d: ", me); printf(#action); printf("\n"); \
        action; drop_unheard(); j = 0; s = 0 \
    }

/* A choice for each view and each index, spelt out. */
#define on_view(k) \
    step(may_start(me, k), start_view_change(me, k)) \
    step(may_promise(me, k), on_vote_request(me, k)) \
    step(may_learn(me, k), on_commit(me, k)) \
    each_index(on_entry, k)
#define on_entry(k, x) step(may_prepare(me, k, x), on_prepare(me, k, x))
#define on_index(unused, x) step(may_commit(me, x), advance_commit(me, x))
#if LEN == 3
#define each_index(f, k) f(k, 1) f(k, 2) f(k, 3)
#elif LEN == 4
#define each_index(f, k) f(k, 1) f(k, 2) f(k, 3) f(k, 4)
#elif LEN == 5
#define each_index(f, k) f(k, 1) f(k, 2) f(k, 3) f(k, 4) f(k, 5)
#endif

proctype Replica(byte me) {
    do
    on_view(1)
    on_view(2)
#if VIEWS >= 3
    on_view(3)
#endif
#if VIEWS >= 4
    on_view(4)
#endif
    each_index(on_index, 0)
    step(may_lead(me), become_leader(me))
    step(may_propose(me), propose(me))
    step(rep[me].dirty, persist(me))
    step(rep[me].view > 0, crash_and_restart(me, 0))
    step(rep[me].commit > 0, crash_and_restart(me, rep[me].commit))
#ifdef LOST_DISK
    step(rep[me].view > 0 && !lost, lose_disk(me))
#endif
    od
}

init { atomic { run Replica(0); run Replica(1); run Replica(2) } }
