#!/usr/bin/python3
"""Servers' own test suites, natively and on three replicas: the same failures, and none more.

usage: suites.py [--postgres DIR] [--mariadb [--mariadb-suite NAME]…] [--redis DIR] [--python] [--libuv DIR] [--libevent DIR]
                 [--perl DIR] [--nginx DIR] [--memcached DIR] [--results FILE] [--keep] [--only SUITE]… [WORD …]

DIR is an unpacked source of the server, of the version that is installed (no package has the tests). PostgreSQL's tests are
run one by one, then several at a time as their schedule says; MariaDB's and Redis's as against any server that they did not
start. Each suite is run twice natively, so that a test which is not stable by itself is told from one that Crane breaks, and
once on three replicas, whose output has to be equal. CPython's, libuv's, libevent's, Perl's, nginx' and memcached's tests
(alone_suite.py) are servers by themselves, and run under one replica's shim. Tests, or units, whose name holds one of the WORDs are taken, or all.

A test that does not end fails alone: what the replicas say of themselves is told with it, and if the server answers nobody
else either, it is started again. Tests named in known.toml may fail; it says why.

Exits with 0 only if nothing but those failed, and 2 if there is no suite.
"""

import argparse
import contextlib
import json
import pathlib
import subprocess
import sys
import time
import tomllib

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "e2e"), str(HERE)]
from alone_suite import AloneSuite, LibeventSuite, LibuvSuite, MemcachedSuite, NginxSuite, PerlSuite, PythonSuite  # noqa: E402
from compare import excused, judge, summary, wrong  # noqa: E402
from mtr_suite import MariaDbSuite  # noqa: E402
from pg_suite import PgSuite  # noqa: E402
from redis_suite import RedisSuite  # noqa: E402
from support.cluster import Cluster, ClusterError  # noqa: E402
from support.native import NativeServer  # noqa: E402
from support.paths import Settings  # noqa: E402

NATIVE_RUNS = 2


def tell(where):
    begin = time.monotonic()
    return lambda text: print(f"    {where} ({time.monotonic() - begin:.0f} s): {text}", flush=True)


@contextlib.contextmanager
def started(suite, native):
    """The server, where it is, and what is asked when a test hangs."""
    server = suite.server(native)
    try:
        if native:
            with NativeServer(server.command(), server.port, name=f"suite-{suite.name}") as running:
                yield server, running.address(), lambda _test: ""
        else:
            with Cluster(server.command(), server.port, name=f"suite-{suite.name}") as cluster:
                yield server, cluster.address(1), lambda test: look(cluster, test)
                cluster.assert_identical()
    finally:
        if not Settings.keep:
            server.remove()


def look(cluster, test):
    """What the replicas say of a test that hangs; with none, the server answers nobody and is started again."""
    try:
        rows = cluster.status().values()
        said = "; ".join(f"replica {row.get('replica_id')}: {row['message']}" for row in rows if row.get("message"))
        if test is None:
            print(f"    the server is started again: {said or 'the replicas say nothing'}", flush=True)
            cluster.crane("restart", timeout_s=120)
    except (ClusterError, subprocess.TimeoutExpired) as error:
        said = f"crane status: {error}"
    return said or "the replicas say nothing"


def run(suite, native, words):
    where = "natively" if native else "under Crane"
    if isinstance(suite, AloneSuite):
        return suite.run(native, words, tell(f"{suite.name} {where}"))
    with started(suite, native) as (server, address, hang):
        return suite.run(server, address, words, hang, tell(f"{suite.name} {where}"))


def chosen(options):
    suites = []
    if options.postgres:
        suites += [PgSuite(options.postgres, serial=True), PgSuite(options.postgres, serial=False)]
    if options.mariadb:
        suites.append(MariaDbSuite(options.mariadb_suite))
    if options.redis:
        suites.append(RedisSuite(options.redis))
    if options.python:
        suites.append(PythonSuite())
    if options.libuv:
        suites.append(LibuvSuite(options.libuv))
    if options.libevent:
        suites.append(LibeventSuite(options.libevent))
    if options.perl:
        suites.append(PerlSuite(options.perl))
    if options.nginx:
        suites.append(NginxSuite(options.nginx))
    if options.memcached:
        suites.append(MemcachedSuite(options.memcached))
    return [suite for suite in suites if not options.only or suite.name in options.only]


def compared(suite, options, known):
    """The rows of one suite."""
    natives = [run(suite, True, options.words) for _ in range(NATIVE_RUNS)]
    rows = judge(natives, run(suite, False, options.words))
    for row in wrong(rows, known):
        print(f"{suite.name}: {row.name}: {row.verdict}\n{row.seen[:1500]}", flush=True)
    for row in rows:
        if row.verdict == "passes" and row.name in known and not row.native:
            print(f"{suite.name}: {row.name}: passes, although known.toml says that it cannot: take it out")
    print(summary(suite.name, rows, known), flush=True)
    return rows


def main():
    parser = argparse.ArgumentParser(description="Servers' own test suites, natively and on three replicas.")
    parser.add_argument("--postgres", metavar="DIR", help="sources of PostgreSQL, of the installed version")
    parser.add_argument("--mariadb", action="store_true", help="MariaDB's tests, of Debian's mariadb-test")
    parser.add_argument("--mariadb-suite", action="append", metavar="NAME", help="of it, instead of main")
    parser.add_argument("--redis", metavar="DIR", help="sources of Redis, of the installed version")
    parser.add_argument("--python", action="store_true", help="CPython's tests, of Debian's libpython3.11-testsuite")
    parser.add_argument("--libuv", metavar="DIR", help="sources of libuv, with its tests built")
    parser.add_argument("--libevent", metavar="DIR", help="sources of libevent, with its tests built")
    parser.add_argument("--perl", metavar="DIR", help="sources of Perl, of the installed version; modules are put into DIR/lib")
    parser.add_argument("--nginx", metavar="DIR", help="nginx-tests")
    parser.add_argument("--memcached", metavar="DIR", help="sources of memcached, built")
    parser.add_argument("--only", metavar="SUITE", action="append",
                        help="postgres-serial, postgres-parallel, mariadb, redis, python, libuv, libevent, perl, nginx or memcached")
    parser.add_argument("--results", metavar="FILE", help="write all results as JSON")
    parser.add_argument("--keep", action="store_true", help="keep the state directories in /var/tmp/crane-e2e-suite-*")
    parser.add_argument("words", metavar="WORD", nargs="*")
    options = parser.parse_args()
    Settings.keep = options.keep
    try:
        suites = chosen(options)
    except FileNotFoundError as error:
        print(f"suites: {error}", file=sys.stderr)
        return 2
    if not suites:
        print("suites: name a suite: --postgres DIR, --mariadb, --redis DIR, --python, --libuv DIR, --libevent DIR, "
              "--perl DIR, --nginx DIR, --memcached DIR", file=sys.stderr)
        return 2
    known = tomllib.loads((HERE / "known.toml").read_text())
    results, failed, let = {}, 0, 0
    for suite in suites:
        reasons = known.get(suite.name.split("-")[0], {})
        rows = compared(suite, options, reasons)
        results[suite.name] = [vars(row) for row in rows]
        failed += len(wrong(rows, reasons))
        let += len(excused(rows, reasons))
    if options.results:
        pathlib.Path(options.results).write_text(json.dumps(results, indent=1) + "\n")
    passed = sum(len(rows) for rows in results.values()) - failed - let
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
