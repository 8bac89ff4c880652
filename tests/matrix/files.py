"""Servers of files, versions, shells, prints and streams."""

import os
import pathlib
import shutil
import tempfile

from entry import Entry, client, http, once, talk, write


class Ftp(Entry):
    """The control connection, and a file over a data connection that the server says where to make."""

    kind = "ftp"
    user, password = "anonymous", "x@crane.test"
    volatile = r"^220.*|^211.*|^2[23]\d[- ].*"

    def pages(self):
        write(self.site / "files" / "one.txt", "one\n" * 100)
        write(self.site / "files" / "two.txt", "two\n" * 200)

    def check(self, address, number):
        text = client("curl", "-sS", "-m", "20", f"ftp://{self.user}:x@{address[0]}:{address[1]}/two.txt")
        return text + talk(address, ("", r"^220 .*\n"), (f"USER {self.user}\r\n", r"^331.*\n"), (f"PASS {self.password}\r\n", r"^230 .*\n"),
                    ("TYPE I\r\n", r"^200.*\n"), (f"SIZE {('one', 'two')[number % 2]}.txt\r\n", r"^213.*\n"), ("PWD\r\n", r"^257.*\n"),
                    ("MDTM one.txt\r\n", r"^213.*\n"), ("QUIT\r\n", r"^221.*\n"))


class Vsftpd(Ftp):
    name = "vsftpd"
    packages, programs = ("vsftpd",), ("/usr/sbin/vsftpd",)
    isolated = ""

    def prepare(self):
        self.pages()
        (self.site / "empty").mkdir()
        write(self.site / "vsftpd.conf", f"listen=YES\nlisten_ipv6=NO\nlisten_port={self.port}\nbackground=NO\nanonymous_enable=YES\nlocal_enable=NO\n"
              f"anon_root={self.site}/files\nsecure_chroot_dir={self.site}/empty\n{self.isolated}")

    def command(self):
        return ["/usr/sbin/vsftpd", self.site / "vsftpd.conf"]


class VsftpdPlain(Vsftpd):
    name = "vsftpd-no-sandbox"
    isolated = "seccomp_sandbox=NO\nisolate=NO\nisolate_network=NO\n"


class Rsyncd(Entry):
    name, kind = "rsyncd", "rsync"
    packages, programs = ("rsync",), ("/usr/bin/rsync",)
    volatile = r"^(sent|total size|sending|receiving).*"

    def prepare(self):
        (self.site / "files").mkdir()
        write(self.site / "files" / "there", "there\n" * 1000)
        write(self.site / "rsyncd.conf", f"port = {self.port}\nuse chroot = no\nuid = root\ngid = root\nlog file = {self.site}/log\nmax connections = 100\n"
              f"lock file = {self.site}/lock\n[files]\npath = {self.site}/files\nread only = no\n")

    def command(self):
        return ["/usr/bin/rsync", "--daemon", "--no-detach", f"--config={self.site}/rsyncd.conf"]

    def check(self, address, number):
        with tempfile.TemporaryDirectory() as folder:
            source, back = pathlib.Path(folder) / f"set{number}", pathlib.Path(folder) / "back"
            for name in ("a", "b/c", "b/d"):
                write(source / name, f"{name} {number}\n" * 5000)
            url = f"rsync://{address[0]}:{address[1]}/files/"
            text = client("rsync", "-a", source, url)
            text += client("rsync", "-ac", f"{url}set{number}/", f"{back}/")
            text += client("rsync", "-a", f"{url}there", f"{back}/there")
            return text + client("sh", "-c", "find . -type f | sort | xargs sha256sum", cwd=back)


class GitDaemon(Entry):
    name, kind = "git-daemon", "git"
    packages, programs = ("git",), ("/usr/lib/git-core/git-daemon",)
    together = 2

    def prepare(self):
        for number in range(64):
            if number == 0:
                once("git", "init", "-q", "--bare", self.site / "repo0")
            else:
                shutil.copytree(self.site / "repo0", self.site / f"repo{number}")

    def command(self):
        return ["/usr/bin/git", "-c", "safe.directory=*", "daemon", "--reuseaddr", "--export-all", "--enable=receive-pack", f"--port={self.port}", f"--base-path={self.site}"]

    def check(self, address, number):
        with tempfile.TemporaryDirectory() as folder:
            fixed = os.environ | {"GIT_AUTHOR_DATE": "2020-01-01T00:00:00Z", "GIT_COMMITTER_DATE": "2020-01-01T00:00:00Z", "GIT_AUTHOR_NAME": "a",
                                  "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@b", "HOME": folder}
            url = f"git://{address[0]}:{address[1]}/repo{number}"
            client("git", "init", "-q", "-b", "main", "one", cwd=folder, environment=fixed)
            for turn in range(2):
                write(pathlib.Path(folder) / "one" / f"file{turn}", f"{number}\n" * 3000)
                client("sh", "-c", f"git add . && git commit -qm {turn} && git push -q {url} HEAD:main", cwd=f"{folder}/one", environment=fixed)
            client("git", "clone", "-q", "-b", "main", url, "two", cwd=folder, environment=fixed)
            return client("git", "log", "--format=%H %s", cwd=f"{folder}/two", environment=fixed)


class Svnserve(Entry):
    name, kind = "svnserve", "svn"
    packages, programs = ("subversion",), ("/usr/bin/svnserve",)
    words = ()

    def prepare(self):
        once("svnadmin", "create", self.site / "repo0")
        write(self.site / "repo0" / "conf" / "svnserve.conf", "[general]\nanon-access = write\n")
        for number in range(1, 64):
            shutil.copytree(self.site / "repo0", self.site / f"repo{number}")

    def command(self):
        return ["/usr/bin/svnserve", "-d", "--foreground", *self.words, f"--listen-port={self.port}", "-r", self.site]

    def check(self, address, number):
        with tempfile.TemporaryDirectory() as folder:
            url = f"svn://{address[0]}:{address[1]}/repo{number}"
            client("svn", "--non-interactive", "checkout", "-q", url, "one", cwd=folder)
            for turn in range(2):
                write(pathlib.Path(folder) / "one" / f"file{turn}", f"{number}\n" * 3000)
                client("sh", "-c", f"svn add -q --force . && svn --non-interactive commit -q -m {turn}", cwd=f"{folder}/one")
            return client("svn", "list", url) + client("svn", "cat", f"{url}/file1")


class SvnserveThreads(Svnserve):
    name, words, crowd = "svnserve-threads", ("--threads",), 0  # natively commits of a crowd fail


class Sshd(Entry):
    """With a key; a command that computes from what is sent to it."""

    name, kind = "sshd", "ssh"
    packages, programs = ("openssh-server", "openssh-client"), ("/usr/sbin/sshd",)
    together = 2
    needs = "show /etc/ssh and /etc/shadow; UsePAM no"
    options = ("--show", "/etc/ssh", "--show", "/etc/shadow")
    user = "root"
    ends = (0,)

    def prepare(self):
        once("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.site / "host")
        once("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.site / "mine")
        os.makedirs("/run/sshd", exist_ok=True)
        shutil.copy(self.site / "mine.pub", self.site / "authorized")
        write(self.site / "sshd_config", f"Port {self.port}\nHostKey {self.site}/host\nAuthorizedKeysFile {self.site}/authorized\nPermitRootLogin yes\nStrictModes no\n"
              f"UsePAM no\nPidFile {self.site}/pid\nUseDNS no\nPrintLastLog no\nMaxStartups 100\n")

    def command(self):
        return ["/usr/sbin/sshd", "-D", "-e", "-f", self.site / "sshd_config"]

    def check(self, address, number):
        with tempfile.TemporaryDirectory() as folder:
            key = f"{folder}/key"
            shutil.copy(self.site / "mine", key)
            os.chmod(key, 0o600)
            words = ["ssh", "-F", "/dev/null", "-i", key, "-p", address[1], "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=no",
                     "-o", f"UserKnownHostsFile={folder}/known", "-o", "LogLevel=ERROR", f"{self.user}@{address[0]}"]
            return client(*words, f"cat | sha256sum; echo {number}; exit 0", data=f"{number}\n" * 2000, ok=self.ends)


class Dropbear(Sshd):
    """Reads no keys but those in root's home: it is seen to refuse, after a whole exchange of keys."""

    name, ends = "dropbear", (255,)
    crowd = 4  # it takes no more from one address that have not logged in
    packages, programs = ("dropbear-bin", "openssh-client"), ("/usr/sbin/dropbear",)

    def prepare(self):
        super().prepare()
        once("dropbearkey", "-t", "ed25519", "-f", self.site / "dropbear")

    def command(self):
        return ["/usr/sbin/dropbear", "-F", "-E", "-r", self.site / "dropbear", "-p", self.port, "-P", self.site / "pid"]


class Icecast(Entry):
    """A source sends, the list of mounts and a file are asked for."""

    name, kind = "icecast2", "streaming"
    packages, programs = ("icecast2",), ("/usr/bin/icecast2",)
    volatile = r"^(Server|Date|Expires|Cache-Control|Pragma|Access-Control.*|Connection)\b.*\n?"

    def prepare(self):
        (self.site / "log").mkdir()
        (self.site / "log").chmod(0o777)
        write(self.site / "web" / "page.txt", "page\n" * 500)
        write(self.site / "icecast.xml", f"<icecast><limits><clients>100</clients><sources>20</sources></limits><authentication><source-password>secret</source-password>"
              f"<admin-user>admin</admin-user><admin-password>secret</admin-password></authentication><hostname>crane.test</hostname><listen-socket><port>{self.port}</port></listen-socket>"
              f"<paths><basedir>/usr/share/icecast2</basedir><logdir>{self.site}/log</logdir><webroot>{self.site}/web</webroot><adminroot>/usr/share/icecast2/admin</adminroot></paths>"
              "<logging><accesslog>access.log</accesslog><errorlog>error.log</errorlog></logging><security><chroot>0</chroot><changeowner><user>icecast2</user><group>icecast</group></changeowner>"
              "</security></icecast>")

    def command(self):
        return ["/usr/bin/icecast2", "-c", self.site / "icecast.xml"]

    def check(self, address, number):
        put = talk(address, (f"PUT /stream{number} HTTP/1.1\r\nHost: x\r\nAuthorization: Basic c291cmNlOnNlY3JldA==\r\nContent-Type: audio/mpeg\r\n"
                             "Expect: 100-continue\r\n\r\n", r"HTTP/1.1 100.*\n"), (b"x" * 20000, ""))
        return put.split("\r\n")[0] + client("curl", "-sS", f"http://{address[0]}:{address[1]}/page.txt") + http(address, "/admin/listmounts", "-u", "admin:wrong", "-o", "/dev/null", "-w", "%{http_code}")


class Cups(Entry):
    name, kind = "cups", "printing"
    packages, programs = ("cups-daemon", "cups-client"), ("/usr/sbin/cupsd",)
    volatile = r"^(Server|Date|Last-Modified|Connection|Keep-Alive).*"

    def prepare(self):
        for folder in ("spool", "cache", "state", "log", "root", "tmp"):
            (self.site / folder).mkdir()
        write(self.site / "cupsd.conf", f"Port {self.port}\nBrowsing Off\nWebInterface Yes\nDefaultAuthType None\nServerName crane\nServerAlias *\nMaxLogSize 0\n<Location />\nOrder allow,deny\nAllow all\n</Location>\n")
        write(self.site / "cups-files.conf", f"ServerRoot {self.site}/root\nRequestRoot {self.site}/spool\nCacheDir {self.site}/cache\nStateDir {self.site}/state\nTempDir {self.site}/tmp\n"
              f"AccessLog {self.site}/log/access\nErrorLog {self.site}/log/error\nPageLog {self.site}/log/page\nSystemGroup root\n", 0o600)

    def command(self):
        return ["/usr/sbin/cupsd", "-f", "-c", self.site / "cupsd.conf", "-s", self.site / "cups-files.conf"]

    def check(self, address, number):
        return client("lpstat", "-h", f"{address[0]}:{address[1]}", "-r") + http(address, f"/nothing{number}", "-H", f"Host: localhost:{self.port}", "-o", "/dev/null", "-w", "%{http_code}")


class Distcc(Entry):
    name, kind = "distccd", "compiling"
    packages, programs = ("distcc",), ("/usr/bin/distccd",)
    together = 2

    def command(self):
        return ["/usr/bin/distccd", "--no-detach", "--daemon", "--user", "nobody", "-p", self.port, "-a", "0.0.0.0/0", "--log-file", self.site / "log", "-j", "2",
                "--enable-tcp-insecure"]

    def prepare(self):
        write(self.site / "log", "", 0o666)

    def check(self, address, number):
        with tempfile.TemporaryDirectory() as folder:
            write(pathlib.Path(folder) / "a.c", f"int f(int x) {{ return x * {number}; }}\n")
            fixed = os.environ | {"DISTCC_HOSTS": f"{address[0]}:{address[1]}", "DISTCC_FALLBACK": "0", "DISTCC_DIR": folder, "HOME": folder}
            client("distcc", "gcc", "-c", "a.c", "-o", "a.o", cwd=folder, environment=fixed)
            return client("sha256sum", "a.o", cwd=folder)
