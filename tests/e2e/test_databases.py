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


def sql(server_class, address, text):
    """Runs the statements in a client of their own; what it prints. OSError if it failed."""
    words = [str(word) for word in server_class.client(address)]
    done = subprocess.run(words, input=text.encode(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60,
                          check=False)
    if done.returncode != 0:
        raise OSError(f"{words[0]} exited with {done.returncode}: {done.stdout.decode(errors='replace')[-1000:]}")
    return done.stdout.decode()


def fill(server_class, address):
    sql(server_class, address, SCHEMA)
    values = ", ".join(f"({n}, 'word {n * 7919 % 1000}')" for n in range(500))
    sql(server_class, address, f"INSERT INTO words VALUES {values};")
    return sql(server_class, address, QUESTIONS)


class Databases(CraneTest):
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
            dead = cluster.primary()
            other = dead % 3 + 1
            cluster.kill_craned(dead)
            wait_until(lambda: self.answers(server_class, cluster.address(other)), 15, "a new primary serves")
            self.assertEqual(self.counted(server_class, cluster.address(other)), clients * rounds)
            self.assertEqual(count(other), 2 * clients * rounds)
            wait_until(lambda: len(cluster.status()) == 3, 30, "the killed replica is back")
            cluster.assert_identical()

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
