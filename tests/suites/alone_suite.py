"""Suites whose programs are client and server in one: each part of them is a server of its own for Crane (one replica,
without a container and without consensus), as conformance.py runs its programs. CPython's, as Debian packages it, libuv's,
libevent's, and what of nginx' and memcached's is written in Perl."""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import time

from compare import PASSED
from support.paths import BUILD, ROOT, Settings

NATIVE_S = 300
# A part that takes longer than this, and than six times what it takes natively, hangs.
HANG_S, END_S = 60, 30
CLIENT_ADDRESS = "127.0.96.1"
TOLD = "told"  # in TMPDIR: where a part may say what craned would keep the end of alone, as it does of all output


def end(process):
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def text_of(*files):
    return "".join(file.read_text(errors="replace") for file in files if file.exists())


class AloneSuite:
    """parts() names what is run by itself, command() and verdicts() say how, and what came of it."""

    environment = {}

    def __init__(self):
        self.native_s = {}

    def run(self, native, words, said):
        results = {}
        for part in self.parts():
            if words and not any(word in part for word in words):
                continue
            with tempfile.TemporaryDirectory(prefix="crane-e2e-suite-", dir="/var/tmp") as folder:
                found = (self.natively if native else self.under_crane)(part, pathlib.Path(folder))
            results |= found
            failed = sum(text != PASSED for text in found.values())
            said(f"{part}: {len(found)} tests{f', {failed} failed' if failed else ''}")
        return results

    def natively(self, part, folder):
        began = time.monotonic()
        output = folder / "output"
        with open(output, "wb") as file:
            process = subprocess.Popen(self.command(part), stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT,
                                       cwd=folder, env=self.variables(folder), start_new_session=True)
            try:
                process.wait(NATIVE_S)
            except subprocess.TimeoutExpired:
                pass
            finally:
                try:
                    os.killpg(process.pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
                process.wait()
        self.native_s[part] = max(self.native_s.get(part, 0), time.monotonic() - began)
        return self.verdicts(part, text_of(output, folder / TOLD))

    def under_crane(self, part, folder):
        state = folder / "state"
        command = [ROOT / "scripts" / "crane-run", "--state-dir", state, "--fresh", "--mode", "dmt", "--isolation", "none",
                   "--restart", "no", "--client-address", CLIENT_ADDRESS, "--", *self.command(part)]
        work = folder / "work"
        work.mkdir()
        with open(folder / "crane-run", "wb") as file:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT, cwd=work,
                                       env={**self.variables(work), "BUILD": str(BUILD)})
            try:
                process.wait(max(HANG_S, 6 * self.native_s.get(part, 0)))
            except subprocess.TimeoutExpired:
                end(process)
        replica = state / "r1"
        found = self.verdicts(part, text_of(replica / "stdout", replica / "stderr", work / TOLD))
        if Settings.keep:
            shutil.copytree(folder, pathlib.Path(f"/var/tmp/crane-e2e-suite-{self.name}-{part}"), dirs_exist_ok=True, symlinks=True)
        return found

    def variables(self, folder):
        return {**os.environ, "TMPDIR": str(folder), **self.environment}


class PythonSuite(AloneSuite):
    """Modules of CPython's tests that are about processes, threads, sockets, files, signals and time."""

    name = "python"
    environment = {"PYTHONDONTWRITEBYTECODE": "1", "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
    program = pathlib.Path("/usr/bin/python3.11")
    # A line for each test, which may be told in two where it says what it is about.
    LINE = re.compile(r"^\w+ \(([\w.]+)\)")
    END = re.compile(r"\.\.\. (?:.*?)?(ok|FAIL|ERROR|skipped\b.*|expected failure)$|^(ok|FAIL|ERROR)$")
    FAILURE = re.compile(r"^(?:ERROR|FAIL): \w+ \(([\w.]+)\)\n-+\n((?:.*\n)*?)\n", re.MULTILINE)

    def __init__(self):
        super().__init__()
        if not pathlib.Path("/usr/lib/python3.11/test/test_socket.py").exists():
            raise FileNotFoundError("CPython's tests are not installed: apt install libpython3.11-testsuite")

    def parts(self):
        words = """select selectors poll epoll threading thread threadsignals queue signal eintr fcntl mmap time os posix
            subprocess fork1 wait3 wait4 popen pty openpty resource io file fileio largefile shutil tempfile pathlib mailbox
            random uuid pwd sys syslog timeout logging faulthandler socketserver asyncore asynchat httpservers httplib
            urllib2_localnet ftplib smtplib poplib imaplib telnetlib ssl xmlrpc docxmlrpc wsgiref concurrent_futures
            asyncio.test_events asyncio.test_streams asyncio.test_subprocess asyncio.test_sslproto asyncio.test_unix_events
            asyncio.test_base_events asyncio.test_sock_lowlevel asyncio.test_sendfile asyncio.test_server"""
        return [f"test_{word}" for word in words.split()]

    def command(self, part):
        return [str(self.program), "-m", "unittest", "-v", f"test.{part}"]

    def verdicts(self, part, text):
        results, name = {}, None
        for line in text.splitlines():
            if found := self.LINE.match(line):
                name = found[1]
            if name and (ended := self.END.search(line)):
                word = ended[1] or ended[2]
                results[name] = PASSED if word not in ("FAIL", "ERROR") else word
                name = None
        for name, told in self.FAILURE.findall(text + "\n"):
            results[name] = told.strip().splitlines()[-1] if told.strip() else "failed"
        return {f"{part}: {name.removeprefix(f'test.{part}.')}": told for name, told in results.items()}


class LibuvSuite(AloneSuite):
    """test/run-tests of a built source, a test at a time."""

    name = "libuv"
    environment = {"UV_RUN_AS_ROOT": "1"}

    def __init__(self, source):
        super().__init__()
        self.source = pathlib.Path(source).resolve()
        self.program = self.source / "test" / "run-tests"
        if not self.program.exists():
            raise FileNotFoundError(f"{source} has no built tests: ./autogen.sh && ./configure && make check TESTS=")

    def parts(self):
        listed = subprocess.run([self.program, "--list"], cwd=self.source, env={**os.environ, **self.environment},
                                capture_output=True, text=True, check=True).stdout
        return [line.split()[0] for line in listed.splitlines() if line.strip()]

    def command(self, part):
        # They look for their files where they were built.
        return ["/bin/sh", "-c", f"cd '{self.source}' && exec test/run-tests {part}"]

    def verdicts(self, part, text):
        if re.search(r"^ok ", text, re.MULTILINE):
            return {part: PASSED}
        return {part: text.strip()[-600:] or "said nothing"}


class LibeventSuite(AloneSuite):
    """test/regress of a built source, a group of tests at a time."""

    name = "libevent"
    LINE = re.compile(r"^(\w+/\w+): ")
    END = re.compile(r"\bOK \(|\[FAILED |\bSKIPPED\b")

    def __init__(self, source):
        super().__init__()
        self.source = pathlib.Path(source).resolve()
        if not (self.source / "test" / "regress").exists():
            raise FileNotFoundError(f"{source} has no built tests: ./autogen.sh && ./configure --disable-shared && make test/regress")

    def parts(self):
        listed = subprocess.run([self.source / "test" / "regress", "--list-tests"], capture_output=True, text=True, check=False)
        return sorted(set(re.findall(r"^\s+(\w+)/\w+", listed.stdout + listed.stderr, re.MULTILINE)))

    def command(self, part):
        return ["/bin/sh", "-c", f"cd '{self.source}' && exec test/regress {part}/.."]

    def verdicts(self, part, text):
        results, name, said = {}, None, []
        for line in text.splitlines():
            if found := self.LINE.match(line):
                name, said = found[1], []
            said.append(line)
            if name and (ended := self.END.search(line)):
                results[name] = "\n".join(said)[-600:] if "FAILED" in ended[0] else PASSED
                name = None
        if name:
            results[name] = "did not end: " + "\n".join(said)[-600:]
        return results


class PerlSuite(AloneSuite):
    """Perl's own tests (t/, lib/, ext/, dist/, cpan/ of its sources) with the perl that is installed, a folder at a time."""

    name = "perl"
    environment = {"PERL_CORE": "1", "PERL_SKIP_TTY_TEST": "1"}
    program = pathlib.Path("/usr/bin/perl")
    FILE_S = 120
    # They look at the sources, or want a perl that was built from them; or they would take the others' time with them.
    LEFT_OUT = re.compile(r"^t/(porting|bigmem|benchmark|perf|japh|win32|test_pl)/|^t/re/(pat|pat_thr|fold_grind\w*)\.t$")

    def __init__(self, source):
        super().__init__()
        self.source = pathlib.Path(source).resolve()
        if not (self.source / "t" / "test.pl").exists():
            raise FileNotFoundError(f"{source} has no sources of Perl: t/test.pl is missing")
        version = subprocess.run([self.program, "-e", "print $^V"], capture_output=True, text=True, check=True).stdout[1:]
        if not self.is_of(version):
            raise FileNotFoundError(f"{source} is not of the version that is installed, {version}")
        self.put_installed_modules()

    def is_of(self, version):
        numbers = dict(re.findall(r"#define PERL_(VERSION|SUBVERSION)\s+(\d+)", (self.source / "patchlevel.h").read_text()))
        return version == f"5.{numbers.get('VERSION')}.{numbers.get('SUBVERSION')}"

    def put_installed_modules(self):
        """Where the tests look for those that a build would have put there."""
        where = subprocess.run([self.program, "-MConfig", "-e", "print qq($Config{privlibexp}\\n$Config{archlibexp})"],
                               capture_output=True, text=True, check=True).stdout.split()
        for folder in (*where, "/usr/lib/x86_64-linux-gnu/perl-base"):
            if pathlib.Path(folder).is_dir():
                subprocess.run(["cp", "-a", f"{folder}/.", self.source / "lib"], check=True)
        for folder in {self.source / "t", *(self.folder_of(file) for file in self.files())}:
            link = folder / "perl"
            if not os.path.lexists(link):
                link.symlink_to(self.program)

    def files(self):
        found = [str(file.relative_to(self.source)) for top in ("t", "lib", "ext", "dist", "cpan") for file in (self.source / top).rglob("*.t")]
        return sorted(file for file in found if not self.LEFT_OUT.search(file))

    def folder_of(self, file):
        """Where perl's own harness runs it."""
        top = file.split("/")
        return self.source / ("t" if top[0] in ("t", "lib") else "/".join(top[:2]))

    def part_of(self, file):
        return "/".join(file.split("/")[:2]) if not file.startswith("lib/") else "lib"

    def parts(self):
        return sorted({self.part_of(file) for file in self.files()})

    def command(self, part):
        lines = []
        for file in self.files():
            if self.part_of(file) != part:
                continue
            folder = self.folder_of(file)
            within = os.path.relpath(self.source / file, folder)
            modules = "-I../lib" if folder.name == "t" else "-I../../lib -Ilib -I."
            lines.append(f"cd '{folder}'; timeout -k 5 {self.FILE_S} ./perl {modules} '{within}' > \"$TMPDIR/one\" 2>&1 < /dev/null; "
                         f"echo \"# {file} $? $(grep -a '^not ok' \"$TMPDIR/one\" | grep -avc TODO)\" >> \"$TMPDIR/{TOLD}\"")
        return ["/bin/sh", "-c", "\n".join(lines)]

    def verdicts(self, part, text):
        results = {}
        for file, status, failed in re.findall(r"^# (\S+\.t) (\d+) (\d+)$", text, re.MULTILINE):
            results[file] = PASSED if (status, failed) == ("0", "0") else f"status {status}, {failed} not ok"
        return results


class TapSuite(AloneSuite):
    """Perl programs that say what held in TAP, each with servers and clients of its own."""

    LINE = re.compile(r"^(not ok|ok) (\d+)(.*)$", re.MULTILINE)

    def __init__(self, source, folder):
        super().__init__()
        self.source = pathlib.Path(source).resolve()
        self.folder = self.source / folder
        if not list(self.folder.glob("*.t")):
            raise FileNotFoundError(f"{self.folder} has no tests (*.t)")

    def parts(self):
        return sorted(file.name for file in self.folder.glob("*.t"))

    def command(self, part):
        program = (self.folder / part).relative_to(self.source)
        return ["/bin/sh", "-c", f"cd '{self.source}' && exec perl '{program}' > \"$TMPDIR/{TOLD}\" 2>&1"]

    PLAN = re.compile(r"^1\.\.\d+", re.MULTILINE)

    def verdicts(self, part, text):
        results = {}
        for word, number, rest in self.LINE.findall(text):
            held = word == "ok" or "# TODO" in rest
            results[f"{part}: {number}"] = PASSED if held else rest.strip() or "failed"
        plan = self.PLAN.search(text)
        if not results or (plan and plan.start() < self.LINE.search(text).start()):
            return results
        # It says at its end how many there were, which may be others the next time.
        failed = "\n".join(f"{name}: {told}" for name, told in results.items() if told != PASSED)
        return {part: failed[:600] or (PASSED if plan else "did not end: " + text[-600:])}


class NginxSuite(TapSuite):
    """nginx-tests, of the day of the nginx that is installed."""

    name = "nginx"
    environment = {"TEST_NGINX_BINARY": "/usr/sbin/nginx", "TEST_NGINX_MODULES": "/usr/lib/nginx/modules",
                   "TEST_NGINX_GLOBALS": "user root;"}

    def __init__(self, source):
        super().__init__(source, ".")


class MemcachedSuite(TapSuite):
    """t/ of a built source."""

    name = "memcached"

    def __init__(self, source):
        super().__init__(source, "t")
        if not (self.source / "memcached-debug").exists():
            raise FileNotFoundError(f"{source} is not built: ./autogen.sh && ./configure --enable-tls && make")
