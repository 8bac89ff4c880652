"""MariaDB (many threads) and PostgreSQL (many processes) under Crane: answers, transactions, a killed primary."""

import subprocess

from support.case import CraneTest, together
from support.databases import MariaDb, Postgres
from support.paths import Settings
from support.procs import wait_until

SCHEMA = """\
CREATE TABLE counters (id int PRIMARY KEY, n int);
INSERT INTO counters VALUES (1, 0), (2, 0);
CREATE TABLE words (id int PRIMARY KEY, word varchar(40));
"""
QUESTIONS = """\
SELECT id, n FROM counters ORDER BY id;
SELECT count(*), min(word), max(word) FROM words;
SELECT a.word, b.word FROM words a JOIN words b ON b.id = a.id + 1 WHERE a.id % 37 = 0 ORDER BY a.id;
"""
# Two rows, always in this order: no deadlock.
TRANSACTION = """\
BEGIN;
UPDATE counters SET n = n + 1 WHERE id = 1;
UPDATE counters SET n = n + 2 WHERE id = 2;
COMMIT;
"""

# Large enough that PostgreSQL, by its own choice, has another process help with its index and its questions.
LARGE = """\
CREATE TABLE large AS SELECT n AS id, n * 7919 % 100003 AS key, repeat(chr(97 + n % 26), 90) AS word FROM generate_series(1, 120000) n;
CREATE UNIQUE INDEX large_id ON large (id);
CREATE INDEX large_key ON large (key, word);
"""
HELPED = """\
SET client_min_messages = debug1;
CREATE INDEX large_word ON large (word);
RESET client_min_messages;
SET parallel_setup_cost = 0;
SET parallel_tuple_cost = 0;
ANALYZE large;
EXPLAIN (ANALYZE, COSTS off, TIMING off, SUMMARY off, BUFFERS off) SELECT count(*) FROM large WHERE word LIKE '%b%';
SELECT count(*), sum(key) FROM large WHERE word LIKE '%b%';
"""


STARTING = b"the database system is starting up"


class HelpedPostgres(Postgres):
    """Has workers to spare."""

    settings = ("max_worker_processes=8", "max_parallel_workers=8")


def sql(server_class, address, text):
    """Runs the statements in a client of their own; what it prints. OSError if it failed."""
    words = [str(word) for word in server_class.client(address)]

    def run():
        return subprocess.run(words, input=text.encode(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60,
                              check=False)

    done = run()
    if STARTING in done.stdout:  # its port is open for a moment before it serves
        outcomes = [done]
        wait_until(lambda: STARTING not in (outcomes.append(run()) or outcomes[-1].stdout), 30, "the database has started")
        done = outcomes[-1]
    if done.returncode != 0:
        raise OSError(f"{words[0]} exited with {done.returncode}: {done.stdout.decode(errors='replace')[-1000:]}")
    return done.stdout.decode()


def fill(server_class, address):
    sql(server_class, address, SCHEMA)
    values = ", ".join(f"({n}, 'word {n * 7919 % 1000}')" for n in range(500))
    sql(server_class, address, f"INSERT INTO words VALUES {values};")
    return sql(server_class, address, QUESTIONS)


class Databases(CraneTest):
    lane = 1

    def counted(self, server_class, address):
        first, second = sql(server_class, address, "SELECT n FROM counters ORDER BY id;").split()
        self.assertEqual(int(second), 2 * int(first))
        return int(first)

    def check(self, server_class):
        clients, rounds = 4, 20 if Settings.quick else 100
        with self.native(server_class) as native:
            expected = fill(server_class, native.address())
        with self.crane(server_class) as cluster:

            def count(replica):
                address = cluster.address(replica)
                together(*[lambda: sql(server_class, address, TRANSACTION * rounds)] * clients)
                return self.counted(server_class, address)

            self.assertEqual(fill(server_class, cluster.address()), expected)
            self.assertEqual(count(1), clients * rounds)
            cluster.assert_identical()
            if Settings.native:
                return
            other = self.lose_primary(cluster, server_class)
            self.assertEqual(self.counted(server_class, cluster.address(other)), clients * rounds)
            self.assertEqual(count(other), 2 * clients * rounds)
            wait_until(lambda: len(cluster.status()) == 3, 30, "the killed replica is back")
            cluster.assert_identical()

    def lose_primary(self, cluster, server_class):
        """Another replica, which serves."""
        dead = cluster.primary()
        other = dead % 3 + 1
        cluster.kill_craned(dead)
        wait_until(lambda: self.answers(server_class, cluster.address(other)), 15, "a new primary serves")
        return other

    @staticmethod
    def answers(server_class, address):
        try:
            return sql(server_class, address, "SELECT 1;") == "1\n"
        except OSError:
            return False

    def test_mariadb(self):
        self.check(MariaDb)

    def test_postgres(self):
        self.check(Postgres)

    def test_postgres_with_parallel_workers(self):
        with self.native(HelpedPostgres) as native:
            sql(HelpedPostgres, native.address(), LARGE)
            expected = self.helped(native.address())
        self.assertIn("with request for", expected)
        self.assertIn("Workers Launched: ", expected)
        self.assertNotIn("Workers Launched: 0", expected)
        with self.crane(HelpedPostgres) as cluster:
            sql(HelpedPostgres, cluster.address(), LARGE)
            self.assertEqual(self.helped(cluster.address()), expected)
            cluster.assert_identical()
            if Settings.native:
                return
            other = self.lose_primary(cluster, HelpedPostgres)
            sql(HelpedPostgres, cluster.address(other), "DROP INDEX large_word;")
            self.assertEqual(self.helped(cluster.address(other)), expected)
            wait_until(lambda: len(cluster.status()) == 3, 60, "the killed replica is back")
            cluster.assert_identical()

    @staticmethod
    def helped(address):
        """What is the same each time: who did how many of the rows is chance."""
        lines = sql(HelpedPostgres, address, HELPED).splitlines()
        return "\n".join(line for line in lines if "Rows Removed" not in line and "actual rows" not in line)
