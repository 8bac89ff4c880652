"""Servers of kinds that are seldom met: file servers, runtimes with schedulers of their own, daemons that share what they hold."""

import json
import os
import re
import signal
import socket
import subprocess
import time
import wave

from entry import TIMEOUT_S, Entry, client, http, once, write
from names import Dns, Slapd
from tongues import Compiled, Lines

GCCGO = """\
package main

import (
	"bufio"
	"fmt"
	"net"
	"runtime"
	"strings"
	"sync"
	"time"
)

func main() {
	var lock sync.Mutex
	counts := map[string]int{}
	work := make(chan func())
	for i := 0; i < 3; i++ {
		go func() {
			for one := range work {
				one()
			}
		}()
	}
	go func() {
		for range time.Tick(100 * time.Millisecond) {
			runtime.GC()
		}
	}()
	listener, err := net.Listen("tcp4", "0.0.0.0:@PORT@")
	if err != nil {
		panic(err)
	}
	for {
		connection, err := listener.Accept()
		if err != nil {
			panic(err)
		}
		go func() {
			defer connection.Close()
			lines := bufio.NewReader(connection)
			for {
				line, err := lines.ReadString('\\n')
				if err != nil {
					return
				}
				line = strings.TrimSpace(line)
				done := make(chan int)
				work <- func() {
					lock.Lock()
					counts[line]++
					count := counts[line]
					lock.Unlock()
					done <- count
				}
				fmt.Fprintf(connection, "%s %d\\n", line, <-done)
			}
		}()
	}
}
"""
RAKU = """\
my %counts;
my $lock = Lock.new;
react {
    whenever IO::Socket::Async.listen('0.0.0.0', @PORT@) -> $connection {
        whenever $connection.Supply.lines -> $line {
            my $count = await start { $lock.protect: { ++%counts{$line} } };
            $connection.print("$line $count\\n");
            LAST { $connection.close }
        }
    }
}
"""
EMACS = """\
(defvar counts (make-hash-table :test 'equal))
(defun heard (process text)
  (let* ((all (concat (process-get process 'rest) text))
         (lines (split-string all "\\n")))
    (while (cdr lines)
      (let ((line (pop lines)))
        (puthash line (1+ (gethash line counts 0)) counts)
        (process-send-string process (format "%s %d\\n" line (gethash line counts)))))
    (process-put process 'rest (car lines))))
(make-network-process :name "lines" :server 64 :host "0.0.0.0" :service @PORT@ :family 'ipv4 :filter 'heard :coding 'utf-8)
(run-with-timer 0.1 0.1 'garbage-collect)
(while t (accept-process-output nil 3600))
"""
PICOLISP = """\
(de serve (Socket)
   (in Socket
      (while (line T)
         (let Line @
            (out Socket (prinl Line " " (length Line))) ) ) ) )
(let Port (port @PORT@)
   (loop
      (let Socket (listen Port)
         (if (fork)
            (close Socket)
            (close Port)
            (serve Socket)
            (bye) ) ) ) )
"""
CRYSTAL = """\
require "socket"
def serve(connection, asked)
  while line = connection.gets
    answer = Channel(Int32).new
    asked.send({line, answer})
    connection.puts "#{line} #{answer.receive}"
  end
  connection.close
end
counts = Hash(String, Int32).new(0)
asked = Channel({String, Channel(Int32)}).new
spawn do
  loop do
    line, answer = asked.receive
    counts[line] += 1
    answer.send counts[line]
  end
end
spawn do
  loop do
    GC.collect
    sleep 0.1
  end
end
server = TCPServer.new("0.0.0.0", @PORT@)
while client = server.accept?
  spawn serve(client, asked)
end
"""
UNO = """\
import os
import sys
import uno
host, port, number = sys.argv[1], sys.argv[2], int(sys.argv[3])
local = uno.getComponentContext()
resolver = local.ServiceManager.createInstanceWithContext("com.sun.star.bridge.UnoUrlResolver", local)
context = resolver.resolve(f"uno:socket,host={host},port={port};urp;StarOffice.ComponentContext")
desktop = context.ServiceManager.createInstanceWithContext("com.sun.star.frame.Desktop", context)
hidden = uno.createUnoStruct("com.sun.star.beans.PropertyValue")
hidden.Name, hidden.Value = "Hidden", True
page = desktop.loadComponentFromURL("private:factory/swriter", "_blank", 0, (hidden,))
text = page.Text
cursor = text.createTextCursor()
for line in range(5):
    text.insertString(cursor, f"line {line} of {number}\\n", False)
found = page.createSearchDescriptor()
found.SearchString = "line"
print(page.findAll(found).Count, len(text.String), text.String, flush=True)
page.close(True)
os._exit(0)  # the bridge's threads may not survive the interpreter's end
"""


class Ganesha(Entry):
    """NFS by a process of many threads, which reads and writes files for clients and keeps handles of them."""

    name, kind = "nfs-ganesha", "nfs"
    packages, programs = ("nfs-ganesha", "nfs-ganesha-mem", "libnfs-utils"), ("/usr/bin/ganesha.nfsd", "/usr/bin/nfs-cp", "/usr/lib/x86_64-linux-gnu/ganesha/libfsalmem.so")

    def prepare(self):
        write(self.site / "ganesha.conf", f"NFS_CORE_PARAM {{ NFS_Port = {self.port}; Protocols = 4; Enable_UDP = false; Enable_RQUOTA = false; Enable_NLM = false; }}\n"
              "MEM { Inode_Size = 1048576; }\nNFSV4 { Graceless = true; RecoveryBackend = fs; RecoveryRoot = " + f"{self.site}/recovery" + "; }\n"
              "EXPORT { Export_Id = 1; Path = /export; Pseudo = /export; Access_Type = RW; Squash = None; SecType = none, sys; FSAL { Name = MEM; } }\n")
        (self.site / "recovery").mkdir()
        for number in range(4):
            write(self.site / "files" / f"f{number}", f"{number} line\n" * 100)

    def command(self):
        return ["/usr/bin/ganesha.nfsd", "-F", "-f", self.site / "ganesha.conf", "-L", "STDERR", "-N", "WARN", "-p", self.site / "pid"]

    def check(self, address, number):
        def where(name):
            return f"nfs://{address[0]}/export{name}?version=4&nfsport={address[1]}"

        text = client("nfs-cp", self.site / "files" / f"f{number % 4}", where(f"/made{number}"))
        heard = client("nfs-cat", where(f"/made{number}"))
        return f"{text} {len(heard)} {heard}"


class Groonga(Entry):
    """A search engine: threads that share one mapped database, and a lock of its own making for each object of it."""

    name, kind = "groonga", "search"
    packages, programs = ("groonga-bin",), ("/usr/bin/groonga",)
    volatile = r"\[\[0,[\d.e-]+,[\d.e-]+\]|^Content-Length.*"

    def prepare(self):
        (self.site / "db").mkdir()
        words = ("table_create Words TABLE_PAT_KEY ShortText --default_tokenizer TokenBigram --normalizer NormalizerAuto\n"
                 "table_create Pages TABLE_HASH_KEY ShortText\ncolumn_create Pages text COLUMN_SCALAR Text\ncolumn_create Words text COLUMN_INDEX|WITH_POSITION Pages text\n")
        once("/usr/bin/groonga", "-n", self.site / "db" / "db", data=words.encode())

    def command(self):
        return ["/usr/bin/groonga", "-s", "--protocol", "http", "--bind-address", "0.0.0.0", "-p", self.port, "-t", "4", "--log-path", self.site / "log", self.site / "db" / "db"]

    def check(self, address, number):
        pages = ",".join(f'{{"_key":"k{number}-{turn}","text":"some number{number} words {turn}"}}' for turn in range(5))
        text = http(address, "/d/load?table=Pages", "--json", f"[{pages}]")
        return text + http(address, f"/d/select?table=Pages&match_columns=text&query=number{number}&sort_keys=_key&output_columns=_key,text")


class Gdnsd(Dns):
    """Reads what its threads share without a lock (liburcu), and sends several answers by one call."""

    name, transfer = "gdnsd", False
    packages, programs = ("gdnsd", "bind9-dnsutils"), ("/usr/sbin/gdnsd",)

    def configure(self):
        (self.site / "zones").mkdir()
        (self.site / "zone").rename(self.site / "zones" / "crane.test")
        for name in ("run", "state"):
            (self.site / name).mkdir()
        write(self.site / "config", f"options => {{ listen => 0.0.0.0:{self.port}, udp_threads => 2, tcp_threads => 2, run_dir => {self.site}/run, state_dir => {self.site}/state, zones_default_ttl => 3600 }}\n")

    def command(self):
        return ["/usr/sbin/gdnsd", "-c", self.site, "-R", "start"]


class GccGo(Compiled):
    """Go as gcc compiles it: a dynamic program, whose goroutines are its library's."""

    name, kind, source, code = "gccgo", "go", "app.go", GCCGO
    packages, programs = ("gccgo",), ("/usr/bin/gccgo",)
    words = ("gccgo", "-O", "app.go", "-o", "app")


class Raku(Lines):
    """Reacts on a pool of threads, which hand on what they have begun."""

    name, kind, source, code = "raku", "raku", "app.raku", RAKU
    packages, programs = ("rakudo",), ("/usr/bin/rakudo",)

    def command(self):
        self.environment = {"HOME": str(self.site)}
        return ["/usr/bin/rakudo", self.site / "app.raku"]


class Emacs(Lines):
    name, kind, source, code = "emacs", "lisp", "app.el", EMACS
    packages, programs = ("emacs-nox",), ("/usr/bin/emacs",)

    def command(self):
        self.environment = {"HOME": str(self.site)}
        return ["/usr/bin/emacs", "--batch", "-Q", "-l", self.site / "app.el"]


class Crystal(Compiled):
    """Fibers, and a collector that looks through their stacks."""

    name, kind, source, code = "crystal", "crystal", "app.cr", CRYSTAL
    packages, programs = ("crystal",), ("/usr/bin/crystal",)
    words = ("CRYSTAL_CACHE_DIR=.", "crystal", "build", "app.cr", "-o", "app")


class Neovim(Entry):
    """An editor that is told what to do by others: its Lua runs between what they say."""

    name, kind = "neovim", "editor"
    packages, programs = ("neovim",), ("/usr/bin/nvim",)

    def command(self):
        self.environment = {"HOME": str(self.site)}
        return ["/usr/bin/nvim", "--headless", "-u", "NONE", "-i", "NONE", "-n", "--listen", f"0.0.0.0:{self.port}"]

    def check(self, address, number):
        def asked(words):
            return client("/usr/bin/nvim", "--server", f"{address[0]}:{address[1]}", "--remote-expr", words, environment={"HOME": str(self.site / "home"), "PATH": "/usr/bin"}) + "\n"

        return asked(f"len(map(range({number}), 'v:val * 2'))") + asked(f"luaeval('string.rep(\"x{number}\", 20)')") + asked("system('echo some words')")


class PicoLisp(Lines):
    """A process for each client."""

    name, kind, source, code = "picolisp", "lisp", "app.l", PICOLISP
    packages, programs = ("picolisp",), ("/usr/bin/picolisp",)

    def command(self):
        return ["/usr/bin/picolisp", "/usr/lib/picolisp/lib.l", "@lib/net.l", self.site / "app.l"]


class Ovsdb(Entry):
    """A database in JSON, whose clients are told of what others change."""

    name, kind = "ovsdb", "database (JSON)"
    packages, programs = ("openvswitch-common",), ("/usr/sbin/ovsdb-server", "/usr/bin/ovsdb-client")
    volatile = r'"uuid","[^"]*"|"details":.*'

    def prepare(self):
        write(self.site / "schema", '{"name":"some","version":"1.0.0","tables":{"T":{"isRoot":true,"columns":{"k":{"type":"string"},"v":{"type":"integer"}},"indexes":[["k"]]}}}')
        once("/usr/bin/ovsdb-tool", "create", self.site / "db", self.site / "schema")

    def command(self):
        return ["/usr/sbin/ovsdb-server", f"--remote=ptcp:{self.port}:0.0.0.0", f"--unixctl={self.site}/ctl", "-vconsole:warn", self.site / "db"]

    def check(self, address, number):
        def asked(*operations):
            return client("ovsdb-client", "transact", f"tcp:{address[0]}:{address[1]}", f'["some",{",".join(operations)}]')

        made = [f'{{"op":"insert","table":"T","row":{{"k":"k{number}-{turn}","v":{turn}}}}}' for turn in range(3)]
        text = asked(*made, f'{{"op":"mutate","table":"T","where":[["k","==","k{number}-1"]],"mutations":[["v","+=",{number}]]}}')
        return text + asked(f'{{"op":"select","table":"T","where":[["k","==","k{number}-1"]],"columns":["k","v"]}}') + asked(made[0])


class Nbdkit(Entry):
    """Threads for each connection, which may work on the same disk at the same time."""

    name, kind = "nbdkit", "block device"
    packages, programs = ("nbdkit", "qemu-utils"), ("/usr/bin/nbdkit", "/usr/bin/qemu-io")

    def command(self):
        return ["/usr/bin/nbdkit", "-f", "-p", self.port, "-i", "0.0.0.0", "--filter=cow", "memory", "64M"]

    def check(self, address, number):
        place = number % 250 * 65536
        words = [f"write -P {number % 255} {place} 20480", f"read -P {number % 255} {place} 20480", f"read -P 0 {place + 32768} 4096", f"discard {place} 65536", "flush"]
        text = client("qemu-io", "-f", "raw", *(word for one in words for word in ("-c", one)), f"nbd://{address[0]}:{address[1]}")
        return "\n".join(line for line in text.splitlines() if "sec" not in line)


class StorageDaemon(Entry):
    """QEMU's disks without a machine: coroutines on stacks of their own, and a pool of threads that reads and writes."""

    name, kind = "qemu-nbd", "block device"
    packages, programs = ("qemu-utils",), ("/usr/bin/qemu-nbd", "/usr/bin/qemu-io")

    def prepare(self):
        once("qemu-img", "create", "-q", "-f", "qcow2", self.site / "disk", "64M")

    def command(self):
        return ["/usr/bin/qemu-nbd", "-f", "qcow2", "--persistent", "--shared=0", "-p", self.port, "-b", "0.0.0.0", "--aio=threads", "--cache=writeback", self.site / "disk"]

    check = Nbdkit.check


class DirectoryServer(Entry):
    """Threads of its own and NSPR's, with Berkeley DB below them."""

    name, kind = "389-ds", "ldap"
    packages, programs = ("389-ds-base", "ldap-utils"), ("/usr/sbin/ns-slapd", "/usr/sbin/dscreate", "/usr/bin/ldapadd")
    check = Slapd.check

    def prepare(self):
        folders = "".join(f"{name}_dir = {self.site}/{name}\n" for name in ("db", "db_home", "backup", "ldif", "lock", "log", "run", "config", "cert"))
        write(self.site / "inf", "[general]\nconfig_version = 2\nfull_machine_name = localhost\nstart = False\nsystemd = False\nstrict_host_checking = False\nselinux = False\n"
              f"[slapd]\ninstance_name = crane\nroot_password = secretsecret\nport = {self.port}\nsecure_port = {self.port + 1}\nself_sign_cert = False\nuser = root\ngroup = root\n"
              f"schema_dir = {self.site}/config/schema\n{folders}")
        # It looks for the instance where Debian has them, and says that there is none.
        subprocess.run(["/usr/sbin/dscreate", "from-file", str(self.site / "inf")], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=120, check=False)
        settings = re.sub(r"nsslapd-rootpw:.*\n( .*\n)*", "nsslapd-rootpw: {CLEAR}secret\n", (self.site / "config" / "dse.ldif").read_text())
        settings = re.sub("nsslapd-rootdn:.*", "nsslapd-rootdn: cn=admin,dc=crane,dc=test", settings)
        write(self.site / "config" / "dse.ldif", re.sub("/run/slapd-crane.socket", f"{self.site}/socket", settings))
        first = subprocess.Popen([str(word) for word in self.command()], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        try:
            self.fill(("-x", "-H", f"ldap://127.0.0.1:{self.port}", "-D", "cn=admin,dc=crane,dc=test", "-w", "secret"))
        finally:
            os.kill(first.pid, signal.SIGTERM)
            first.wait(30)

    @staticmethod
    def fill(where):
        for _ in range(60):
            if subprocess.run(["ldapwhoami", *where], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode == 0:
                break
            time.sleep(0.5)
        once("ldapadd", *where, data=b"dn: cn=userRoot,cn=ldbm database,cn=plugins,cn=config\nobjectClass: top\nobjectClass: extensibleObject\nobjectClass: nsBackendInstance\ncn: userRoot\n"
             b"nsslapd-suffix: dc=crane,dc=test\n\ndn: cn=\"dc=crane,dc=test\",cn=mapping tree,cn=config\nobjectClass: top\nobjectClass: extensibleObject\nobjectClass: nsMappingTree\n"
             b"cn: dc=crane,dc=test\nnsslapd-state: backend\nnsslapd-backend: userRoot\n\ndn: dc=crane,dc=test\nobjectClass: dcObject\nobjectClass: organization\no: crane\ndc: crane\n")

    def command(self):
        return ["/usr/sbin/ns-slapd", "-d", "0", "-D", self.site / "config", "-i", self.site / "pid"]


class Libvirtd(Entry):
    """Calls by XDR on a main loop and a pool of threads; its machines are those of its own tests."""

    name, kind = "libvirtd", "virtual machines"
    packages, programs = ("libvirt-daemon", "libvirt-clients"), ("/usr/sbin/libvirtd", "/usr/bin/virsh")
    volatile = r"^Id:.*|^CPU time:.*|^UUID:.*"

    def prepare(self):
        (self.site / "drivers").mkdir()
        self.environment = {"LIBVIRT_DRIVER_DIR": str(self.site / "drivers")}
        write(self.site / "conf", f'listen_tls = 0\nlisten_tcp = 1\ntcp_port = "{self.port}"\nlisten_addr = "0.0.0.0"\nauth_tcp = "none"\nauth_unix_ro = "none"\nauth_unix_rw = "none"\n'
              f'unix_sock_dir = "{self.site}"\nhost_uuid = "00112233-4455-6677-8899-aabbccddeeff"\nlog_outputs = "3:stderr"\nmax_clients = 200\nmax_anonymous_clients = 100\n')

    def command(self):
        return ["/usr/sbin/libvirtd", "--listen", "-f", self.site / "conf", "-p", self.site / "pid"]

    def check(self, address, number):
        machine = self.site / f"m{number}.xml"
        write(machine, f"<domain type='test'><name>m{number}</name><memory>{1024 * (number + 1)}</memory><os><type arch='i686'>hvm</type></os></domain>")
        return client("virsh", "-q", "-c", f"test+tcp://{address[0]}:{address[1]}/default", f"define {machine}; start m{number}; dominfo m{number}; suspend m{number}; domstate m{number}; "
                      f"destroy m{number}; undefine m{number}; pool-info default-pool; nodeinfo", environment={"HOME": "/nonexistent", "PATH": "/usr/bin"})


class Debuginfod(Entry):
    """A pool of threads that looks through files at the start, and SQLite between them and those that answer."""

    name, kind = "debuginfod", "web"
    packages, programs = ("debuginfod", "gcc"), ("/usr/bin/debuginfod",)

    def prepare(self):
        for number in range(4):
            write(self.site / "files" / f"f{number}.c", f"int main(void) {{ return {number}; }}\n")
            once("gcc", "-g", f"-Wl,--build-id=0x{number:040x}", self.site / "files" / f"f{number}.c", "-o", self.site / "files" / f"f{number}")

    def command(self):
        return ["/usr/bin/debuginfod", "-F", "-p", self.port, "-d", self.site / "database", "-t", "3600", "-g", "3600", "-c", "4", self.site / "files"]

    def check(self, address, number):
        def asked(one, path):
            return http(address, f"/buildid/{one:040x}/{path}", "--output", "/dev/null", "-w", "%{http_code} %{size_download}") + "\n"

        if number == 0:  # all have been found
            assert "404" not in "".join(asked(one, "debuginfo") for one in range(4))
        text = "".join(asked(number % 4, path) for path in ("debuginfo", f"source{self.site}/files/f{number % 4}.c", "section/.text"))
        return text + http(address, f"/buildid/{number + 5:040x}/debuginfo")


class Janus(Entry):
    """WebRTC's gateway, as far as it goes without any: sessions, rooms, and events for which a request waits."""

    name, kind = "janus", "webrtc"
    packages, programs = ("janus",), ("/usr/bin/janus",)
    volatile = r'"(id|session_id|sender|uptime|plugindata)": [0-9]+'
    folder = "/usr/lib/x86_64-linux-gnu/janus"

    def prepare(self):
        for name in ("events", "loggers", "plugins", "transports", "conf"):
            (self.site / name).mkdir()
        for name in ("plugins/libjanus_textroom.so", "plugins/libjanus_videoroom.so", "transports/libjanus_http.so"):
            (self.site / name).symlink_to(f"{self.folder}/{name}")
        write(self.site / "conf" / "janus.jcfg", f'general: {{ configs_folder = "{self.site}/conf"\n plugins_folder = "{self.site}/plugins"\n transports_folder = "{self.site}/transports"\n'
              f' events_folder = "{self.site}/events"\n loggers_folder = "{self.site}/loggers"\n debug_level = 2\n}}\nnat: {{ ice_lite = false\n}}\n')
        write(self.site / "conf" / "janus.transport.http.jcfg", f'general: {{ json = "indented"\n base_path = "/janus"\n http = true\n port = {self.port}\n https = false\n}}\n')
        write(self.site / "conf" / "janus.plugin.textroom.jcfg", 'general: { }\nroom-1234: { description = "some"\n}\n')

    def command(self):
        return ["/usr/bin/janus", "-F", self.site / "conf", "-C", self.site / "conf" / "janus.jcfg"]

    def check(self, address, number):
        heard = []

        def asked(path, words):
            text = http(address, f"/janus{path}", "--json", words)
            heard.append(text)
            found = re.search(r'"id": (\d+)', text)
            return found.group(1) if found else ""

        session = asked("", '{"janus":"create","transaction":"a"}')
        for plugin in ("textroom", "videoroom"):
            handle = asked(f"/{session}", f'{{"janus":"attach","plugin":"janus.plugin.{plugin}","transaction":"b"}}')
            asked(f"/{session}/{handle}", f'{{"janus":"message","transaction":"c","body":{{"request":"create","room":{number + 1},"description":"room {number}"}}}}')
            asked(f"/{session}/{handle}", f'{{"janus":"message","transaction":"c","body":{{"request":"exists","room":{number + 1}}}}}')
            asked(f"/{session}/{handle}", f'{{"janus":"message","transaction":"d","body":{{"request":"destroy","room":{number + 1}}}}}')
        asked(f"/{session}", '{"janus":"destroy","transaction":"e"}')
        return re.sub("Content-Length.*", "", "".join(heard).replace(session, "SESSION"))


class LibreOffice(Entry):
    """An office that is asked by others to write: threads of calls that come in, and one lock for all that they touch."""

    name, kind = "libreoffice", "office"
    crowd = 10
    packages, programs = ("libreoffice-writer-nogui", "python3-uno"), ("/usr/lib/libreoffice/program/soffice.bin", "/usr/lib/python3/dist-packages/uno.py")

    def prepare(self):
        write(self.site / "client.py", UNO)
        self.environment = {"HOME": str(self.site)}
        # The first start makes the user's files, and ends for another one.
        subprocess.run([*(str(word) for word in self.command()), "--terminate_after_init"], env=os.environ | self.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=120, check=False)

    def command(self):
        return ["/usr/lib/libreoffice/program/soffice.bin", "--headless", "--norestore", "--nologo", "--nodefault", f"--accept=socket,host=0.0.0.0,port={self.port};urp;",
                f"-env:UserInstallation=file://{self.site}/profile"]

    def check(self, address, number):
        return client("/usr/bin/python3", self.site / "client.py", *address, number)


class Pulse(Entry):
    """Sound that goes nowhere: threads that wake by the clock, and clients who are told of what others do."""

    name, kind = "pulseaudio", "sound"
    crowd = 10
    packages, programs = ("pulseaudio", "pulseaudio-utils"), ("/usr/bin/pulseaudio", "/usr/bin/pactl")

    def prepare(self):
        for name in ("run", "state"):
            (self.site / name).mkdir(mode=0o700)
        self.environment = {"HOME": str(self.site), "PULSE_RUNTIME_PATH": str(self.site / "run"), "PULSE_STATE_PATH": str(self.site / "state")}

    def command(self):
        return ["/usr/bin/pulseaudio", "-n", "--daemonize=no", "--exit-idle-time=-1", "--use-pid-file=no", "--disallow-exit=yes", "-L", f"module-native-protocol-tcp port={self.port} listen=0.0.0.0 auth-anonymous=1",
                "-L", "module-null-sink sink_name=some", "-L", "module-null-sink sink_name=other"]

    def check(self, address, number):
        def asked(*words, data=""):
            return client("pactl", "-s", f"tcp:{address[0]}:{address[1]}", *words, data=data, environment={"HOME": "/nonexistent", "PATH": "/usr/bin", "PULSE_RUNTIME_PATH": str(self.site / "run"),
                                                                                                           "PULSE_COOKIE": "/dev/null"}, error=False)

        text = "\n".join(re.findall("^(?:Default|Server Name).*", asked("info"), re.MULTILINE)) + asked("get-sink-volume", "other")
        with wave.open(str(self.site / f"sound{number}.wav"), "wb") as sound:
            sound.setparams((1, 2, 44100, 0, "NONE", "none"))
            sound.writeframes(bytes(range(256)) * 512)
        return text + asked("upload-sample", self.site / f"sound{number}.wav", f"sound{number}") + asked("play-sample", f"sound{number}", "some") + asked("remove-sample", f"sound{number}")


class Chromium(Entry):
    """A browser that others drive: several processes, each with a dozen threads, code made at run time, memory that they share."""

    name, kind = "chromium", "browser"
    crowd = 6
    packages, programs = ("chromium",), ("/usr/lib/chromium/chromium",)

    def command(self):
        self.environment = {"HOME": str(self.site)}
        return ["/usr/lib/chromium/chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-breakpad", f"--remote-debugging-port={self.port}",
                "--remote-allow-origins=*", f"--user-data-dir={self.site}/profile", "about:blank"]

    def check(self, address, number):
        base = f"http://{address[0]}:{address[1]}"
        page = json.loads(client("curl", "-sS", "-m", TIMEOUT_S, "-X", "PUT", "-H", "Host: localhost", f"{base}/json/new?about:blank"))
        text = Socket(address, f"/devtools/page/{page['id']}").asked("Runtime.evaluate", {"expression": f"document.body.innerHTML = '<p>' + [...Array(20).keys()].map(n => n * {number}) + '</p>'; document.body.innerText"})
        return text + client("curl", "-sS", "-m", TIMEOUT_S, "-H", "Host: localhost", f"{base}/json/close/{page['id']}").replace(page["id"], "PAGE")


class Socket:
    """As much of a web socket as one question takes."""

    def __init__(self, address, path):
        self.connection = socket.create_connection(address, TIMEOUT_S)
        self.connection.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n".encode())
        self.heard = b""
        self.until(lambda: b"\r\n\r\n" in self.heard)
        assert b" 101 " in self.heard.split(b"\r\n")[0], self.heard
        self.heard = self.heard.split(b"\r\n\r\n", 1)[1]

    def until(self, there):
        while not there():
            data = self.connection.recv(65536)
            assert data, f"closed after {self.heard!r}"
            self.heard += data

    def asked(self, method, words):
        told = json.dumps({"id": 1, "method": method, "params": words}).encode()
        self.connection.sendall(b"\x81" + (bytes([0x80 | len(told)]) if len(told) < 126 else b"\xfe" + len(told).to_bytes(2, "big")) + b"\0\0\0\0" + told)
        self.until(lambda: len(self.heard) >= 4)
        size, start = (self.heard[1], 2) if self.heard[1] < 126 else (int.from_bytes(self.heard[2:4], "big"), 4)
        self.until(lambda: len(self.heard) >= start + size)
        self.connection.close()
        return self.heard[start:start + size].decode() + "\n"
