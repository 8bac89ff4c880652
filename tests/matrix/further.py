"""Servers that watch files, that put themselves into the background, and others of kinds of their own."""

import json

from entry import PYTHON, Entry, client, http, once, talk, write

MESSAGE = "From: a@crane.test\r\nTo: b@crane.test\r\nSubject: number {0}\r\nMessage-Id: <{0}@crane.test>\r\n\r\nSome words of {0}.\r\n"


class Rspamd(Entry):
    """Watches its configuration; compiles expressions in a process of its own while it serves."""

    name, kind = "rspamd", "mail filter"
    packages, programs = ("rspamd",), ("/usr/bin/rspamd",)
    volatile = r'"time_real":[\d.]+|"(?:scan_time|milter|message-id)":[^,}]*'

    def prepare(self):
        once("sh", "-c", f"cp -r /etc/rspamd {self.site}/etc && mkdir -p {self.site}/etc/local.d {self.site}/db {self.site}/run && chmod 777 {self.site}/db {self.site}/run")
        write(self.site / "etc" / "local.d" / "worker-normal.inc", f'bind_socket = "0.0.0.0:{self.port}";\ncount = 2;\n')
        write(self.site / "etc" / "local.d" / "logging.inc", 'type = "console";\n')
        write(self.site / "etc" / "local.d" / "options.inc", 'dns { nameserver = ["127.0.0.1:9"]; timeout = 0.1s; retransmits = 1; }\n')
        for name in ("proxy", "controller", "fuzzy"):
            write(self.site / "etc" / "local.d" / f"worker-{name}.inc", "enabled = false;\n")

    def command(self):
        return ["/usr/bin/rspamd", "-f", "-i", "-u", "nobody", "-g", "nogroup", "-c", self.site / "etc" / "rspamd.conf", "--var", f"CONFDIR={self.site}/etc",
                "--var", f"LOCAL_CONFDIR={self.site}/etc", "--var", f"DBDIR={self.site}/db", "--var", f"RUNDIR={self.site}/run"]

    def check(self, address, number):
        text = http(address, "/checkv2", "--data-binary", MESSAGE.format(number))
        found = json.loads(text[text.index("{"):])
        # Of name servers that do not answer it gives up some for a time.
        return json.dumps([found["action"], sorted(symbol for symbol in found["symbols"] if "DNS" not in symbol)])


class Fossil(Entry):
    name, kind = "fossil", "version control"
    packages, programs = ("fossil",), ("/usr/bin/fossil",)
    volatile = r"nonce-\S+|nonce=\S+|[0-9a-f]{32,}|\d+\.\d+s"

    def prepare(self):
        self.environment = {"USER": "root", "HOME": str(self.site)}
        once("env", "USER=root", f"HOME={self.site}", "/usr/bin/fossil", "init", self.site / "all.fossil")

    def command(self):
        return ["/usr/bin/fossil", "server", "--port", self.port, self.site / "all.fossil"]

    def check(self, address, number):
        heads = [http(address, path, "-o", "/dev/null", "-w", "%{http_code} %{content_type}") for path in ("/timeline", "/brlist", f"/none{number}")]
        return "\n".join(heads)


class Mercurial(Entry):
    """A daemon."""

    name, kind = "hg-serve", "version control"
    packages, programs = ("mercurial",), ("/usr/bin/hg",)
    together = 2

    def prepare(self):
        once("sh", "-ec", f"cd {self.site}; hg init all; cd all; for n in 1 2 3; do seq $n 2000 >file$n; hg add -q file$n; "
             "hg commit -q -d '1000000000 0' -u one@crane.test -m \"number $n\"; done")

    def replicated_command(self):
        return [*self.command(), "-d"]

    def command(self):
        return ["/usr/bin/hg", "serve", "-R", self.site / "all", "-a", "0.0.0.0", "-p", self.port, "--pid-file", self.site / "pid",
                "-A", "/dev/null", "-E", "/dev/null"]

    def check(self, address, number):
        where = f"http://{address[0]}:{address[1]}/"
        text = client("/usr/bin/hg", "identify", "--debug", where, environment={"PATH": "/usr/bin:/bin", "HGPLAIN": "1"})
        return text + http(address, f"/raw-file/tip/file{number % 3 + 1}")


class Znc(Entry):
    """A daemon."""

    name, kind = "znc", "irc bouncer"
    packages, programs = ("znc",), ("/usr/bin/znc",)

    def prepare(self):
        users = "".join(f"<User user{number}>\n Pass = plain#secret\n</User>\n" for number in range(64))
        (self.site / "data" / "configs").mkdir(parents=True)
        write(self.site / "data" / "configs" / "znc.conf", f"Version = 1.8.2\n<Listener all>\n Port = {self.port}\n IPv4 = true\n IPv6 = false\n SSL = false\n"
              f"</Listener>\n<User admin>\n Admin = true\n Pass = plain#secret\n</User>\n{users}")
        once("chown", "-R", "65534:65534", self.site)

    def replicated_command(self):
        return ["/usr/bin/setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "/usr/bin/znc", "-d", self.site / "data"]

    def command(self):
        return [*self.replicated_command(), "-f"]

    def check(self, address, number):
        return talk(address, (f"PASS user{number % 64}:secret\r\nNICK some{number}\r\nUSER user{number % 64} 0 * :x\r\n", r" 001 .*\n"),
                    ("PRIVMSG *status :version\r\n", r"ZNC.*\n"), ("PING :some\r\n", r"PONG.*\n"))


class Supervisor(Entry):
    """A daemon, with a child that it starts again when asked to."""

    name, kind = "supervisord", "supervision"
    packages, programs = ("supervisor",), ("/usr/bin/supervisord",)
    volatile = r"pid \d+, uptime \S+|\d{4}-\d\d-\d\d \S+"
    together = crowd = 1

    def prepare(self):
        write(self.site / "supervisor.conf", f"[supervisord]\nlogfile={self.site}/log\npidfile={self.site}/pid\n[inet_http_server]\nport=0.0.0.0:{self.port}\n"
              "[rpcinterface:supervisor]\nsupervisor.rpcinterface_factory=supervisor.rpcinterface:make_main_rpcinterface\n"
              "[program:cat]\ncommand=/bin/cat\nstartsecs=0\n")

    def replicated_command(self):
        return ["/usr/bin/supervisord", "-c", self.site / "supervisor.conf"]

    def command(self):
        return [*self.replicated_command(), "-n"]

    def check(self, address, number):
        words = ["/usr/bin/supervisorctl", "-s", f"http://{address[0]}:{address[1]}"]
        return "".join(client(*words, *asked, ok=(0, 3)) for asked in (["restart", "cat"], ["status"], ["avail"]))


class Snapserver(Entry):
    name, kind = "snapserver", "audio"
    packages, programs = ("snapserver",), ("/usr/bin/snapserver",)

    def prepare(self):
        write(self.site / "snapserver.conf", f"[server]\ndatadir = {self.site}\n[http]\nenabled = false\n[tcp]\nport = {self.port}\n"
              f"[stream]\nport = {self.fresh_port()}\nsource = pipe://{self.site}/fifo?name=default\n")

    def command(self):
        return ["/usr/bin/snapserver", "-c", self.site / "snapserver.conf"]

    def check(self, address, number):
        asked = json.dumps({"id": number, "jsonrpc": "2.0", "method": "Server.GetRPCVersion"})
        return talk(address, (asked + "\r\n", r"\n"), (asked.replace("GetRPCVersion", "None") + "\r\n", r"\n"))


class Aria(Entry):
    name, kind = "aria2", "download"
    packages, programs = ("aria2",), ("/usr/bin/aria2c",)
    volatile = r'"gid":"[0-9a-f]+"|"result":"[0-9a-f]{16}"|sessionId":"[0-9a-f]+"'

    def command(self):
        return ["/usr/bin/aria2c", "--no-conf", "--enable-rpc", "--rpc-listen-all", f"--rpc-listen-port={self.port}", "--dir", self.site, "--disable-ipv6"]

    def check(self, address, number):
        def ask(method, *given):
            body = json.dumps({"jsonrpc": "2.0", "id": f"n{number}", "method": method, "params": given})
            return http(address, "/jsonrpc", "-d", body)

        return ask("aria2.getVersion") + ask("aria2.getGlobalOption") + ask("aria2.tellStatus", f"{number:016x}")


class PyFtpd(Entry):
    name, kind = "pyftpdlib", "ftp (Python)"
    packages, programs = ("python3-pyftpdlib",), ("/usr/lib/python3/dist-packages/pyftpdlib/__init__.py",)
    volatile = r"modify=\d+|unique=\w+"

    def prepare(self):
        for number in range(4):
            write(self.site / f"file{number}", f"number {number}\n" * 3000)

    def command(self):
        return [PYTHON, "-m", "pyftpdlib", "-i", "0.0.0.0", "-p", self.port, "-d", self.site]

    def check(self, address, number):
        return talk(address, ("", r"^220 "), ("USER anonymous\r\n", r"^331 "), ("PASS x\r\n", r"^230 "), ("TYPE I\r\n", r"^200 "), (f"SIZE file{number % 4}\r\n", r"^213 "),
                    ("PWD\r\n", r"^257 "), (f"MLST file{number % 4}\r\n", r"^250 End"), ("QUIT\r\n", r"^221 "))


class Jupyter(Entry):
    name, kind = "jupyter", "notebooks"
    packages, programs = ("jupyter-notebook",), ("/usr/bin/jupyter-notebook",)
    volatile = r"(?i)^(?:x-|content-security|content-length|server).*|\"(?:last_modified|created|started|last_activity)\": \"[^\"]*\""

    def prepare(self):
        self.environment = {"HOME": str(self.site), "JUPYTER_PLATFORM_DIRS": "0"}
        for number in range(4):
            write(self.site / "work" / f"file{number}.txt", f"number {number}\n" * 100)

    def command(self):
        return ["/usr/bin/jupyter-notebook", "--allow-root", "--ip=0.0.0.0", f"--port={self.port}", "--no-browser", "--NotebookApp.token=", "--NotebookApp.password=",
                "--NotebookApp.disable_check_xsrf=True", f"--notebook-dir={self.site}/work"]

    def check(self, address, number):
        body = json.dumps({"type": "file", "format": "text", "content": f"of session {number}"})
        return "".join([http(address, f"/api/contents/file{number % 4}.txt"), http(address, "/api/kernelspecs", "-o", "/dev/null", "-w", "%{http_code}"),
                        http(address, f"/api/contents/new{number}.txt", "-X", "PUT", "-H", "Content-Type: application/json", "-d", body, "-o", "/dev/null",
                             "-w", "%{http_code}"), http(address, f"/api/contents/new{number}.txt")])
