"""Servers of further kinds: of jobs, music, calendars, messages, and other languages' own."""

import pathlib
import re
import tempfile

from entry import PYTHON, Entry, client, http, once, talk, write


class Rabbit(Entry):
    name, kind = "rabbitmq", "amqp"
    packages, programs = ("rabbitmq-server", "amqp-tools"), ("/usr/lib/rabbitmq/bin/rabbitmq-server",)
    together = 1

    def remove(self):
        # What natively is started beside it goes on when it ends.
        client("/usr/bin/epmd", "-port", "4399", "-kill", ok=(0, 1))
        super().remove()

    def prepare(self):
        write(self.site / "rabbitmq.conf", f"listeners.tcp.1 = 0.0.0.0:{self.port}\nloopback_users = none\n")
        once("chmod", "777", self.site)

    def command(self):
        self.environment = {"RABBITMQ_CONFIG_FILE": str(self.site / "rabbitmq.conf"), "RABBITMQ_MNESIA_BASE": str(self.site), "RABBITMQ_LOG_BASE": str(self.site),
                            "RABBITMQ_LOGS": "-", "HOME": str(self.site), "RABBITMQ_NODENAME": "crane@localhost", "RABBITMQ_SERVER_START_ARGS": "-start_epmd false",
                            "ERL_EPMD_PORT": "4399", "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-setcookie crane"}
        return ["/usr/lib/rabbitmq/bin/rabbitmq-server"]

    def check(self, address, number):
        url = f"--url=amqp://guest:guest@{address[0]}:{address[1]}"
        text = client("amqp-declare-queue", url, "-q", f"queue{number}")
        client("amqp-publish", url, "-r", f"queue{number}", "-b", f"message {number}")
        return text + client("amqp-get", url, "-q", f"queue{number}")


class Transmission(Entry):
    name, kind = "transmission", "torrent"
    packages, programs = ("transmission-daemon",), ("/usr/bin/transmission-daemon",)

    def command(self):
        return ["/usr/bin/transmission-daemon", "-f", "-g", self.site, "-p", self.port, "-r", "0.0.0.0", "-T", "-a", "*.*.*.*", "-O", "-M"]

    def check(self, address, number):
        first = http(address, "/transmission/rpc")
        session = re.search(r"X-Transmission-Session-Id: (\S+)", first)[1]
        fields = ["download-dir", "version", "alt-speed-down", "encryption"]
        asked = '{"method":"session-get","tag":%d,"arguments":{"fields":["%s"]}}' % (number, fields[number % 4])
        text = http(address, "/transmission/rpc", "-H", f"X-Transmission-Session-Id: {session}", "-d", asked)
        return text[text.index("{"):]


class Mpd(Entry):
    name, kind = "mpd", "music"
    packages, programs = ("mpd",), ("/usr/bin/mpd",)

    def prepare(self):
        (self.site / "music").mkdir()
        (self.site / "lists").mkdir()
        write(self.site / "mpd.conf", f'music_directory "{self.site}/music"\nplaylist_directory "{self.site}/lists"\ndb_file "{self.site}/db"\n'
              f'bind_to_address "0.0.0.0"\nport "{self.port}"\nzeroconf_enabled "no"\naudio_output {{\n type "null"\n name "none"\n}}\n')

    def command(self):
        return ["/usr/bin/mpd", "--no-daemon", "--stderr", self.site / "mpd.conf"]

    def check(self, address, number):
        return talk(address, ("", r"^OK MPD.*\n"), (f"save list{number}\n", r"^(OK|ACK.*)\n"), (f"listplaylistinfo list{number}\n", r"^(OK|ACK.*)\n"),
                    (f"setvol {number}\n", r"^(OK|ACK.*)\n"), ("outputs\n", r"^OK\n"), ("urlhandlers\n", r"^OK\n"), ("close\n", r""))


class Radicale(Entry):
    name, kind = "radicale", "calendar"
    packages, programs = ("radicale",), ("/usr/bin/radicale",)
    volatile = r"(?i)^(server|etag):.*"

    def prepare(self):
        write(self.site / "config", f"[server]\nhosts = 0.0.0.0:{self.port}\n[auth]\ntype = none\n[rights]\ntype = authenticated\n"
              f"[storage]\nfilesystem_folder = {self.site}/collections\n")

    def command(self):
        return ["/usr/bin/radicale", "--config", self.site / "config"]

    def check(self, address, number):
        who = ["-u", f"user{number}:x"]
        event = (f"BEGIN:VCALENDAR\r\nVERSION:2.0\r\nPRODID:crane\r\nBEGIN:VEVENT\r\nUID:{number}\r\nDTSTAMP:20200101T000000Z\r\n"
                 f"DTSTART:20200101T100000Z\r\nSUMMARY:event {number}\r\nEND:VEVENT\r\nEND:VCALENDAR\r\n")
        text = http(address, f"/user{number}/c/", *who, "-X", "MKCALENDAR")
        text += http(address, f"/user{number}/c/{number}.ics", *who, "-X", "PUT", "-H", "Content-Type: text/calendar", "--data-binary", event)
        return text + http(address, f"/user{number}/c/{number}.ics", *who)


class Xinetd(Entry):
    """A program for each connection, which has it as its standard input and output."""

    name, kind = "xinetd", "inetd"
    packages, programs = ("xinetd",), ("/usr/sbin/xinetd",)

    def prepare(self):
        write(self.site / "xinetd.conf", "defaults\n{\n instances = 60\n log_type = FILE /dev/null\n cps = 0 0\n}\nservice words\n{\n type = UNLISTED\n"
              f" port = {self.port}\n socket_type = stream\n protocol = tcp\n wait = no\n user = root\n server = /usr/bin/sed\n server_args = -u s/word/WORD/\n disable = no\n}}\n")

    def command(self):
        return ["/usr/sbin/xinetd", "-dontfork", "-f", self.site / "xinetd.conf", "-pidfile", self.site / "pid"]

    def check(self, address, number):
        return talk(address, *((f"word {number} {turn}\n", r"WORD.*\n") for turn in range(4)))


class Ejabberd(Entry):
    name, kind = "ejabberd", "xmpp (Erlang)"
    packages, programs = ("ejabberd",), ("/usr/bin/erl",)
    volatile = r"(?<= id=)(['\"])[^'\"]*['\"]|[0-9]{10,}"
    together = 1

    def prepare(self):
        write(self.site / "ejabberd.yml", f'hosts:\n  - crane.test\nloglevel: 3\nlisten:\n  -\n    port: {self.port}\n    ip: "0.0.0.0"\n    module: ejabberd_c2s\n'
              "auth_method: anonymous\nauth_password_format: plain\nmodules:\n  mod_disco: {}\n  mod_ping: {}\n")

    def command(self):
        self.environment = {"EJABBERD_CONFIG_PATH": str(self.site / "ejabberd.yml"), "HOME": str(self.site), "SPOOL_DIR": str(self.site)}
        libraries = [str(path) for path in pathlib.Path("/usr/lib").glob("*/ejabberd*/ebin")]
        return ["/usr/bin/erl", "-noinput", "-noshell", "-pa", *libraries, "-mnesia", "dir", f'"{self.site}/db"', "-s", "ejabberd"]

    def check(self, address, number):
        opening = "<?xml version='1.0'?><stream:stream to='crane.test' xmlns='jabber:client' xmlns:stream='http://etherx.jabber.org/streams' version='1.0'>"
        return talk(address, (opening, r"</stream:features>"),
                    ("<auth xmlns='urn:ietf:params:xml:ns:xmpp-sasl' mechanism='ANONYMOUS'/>", r"success.*>"), (opening, r"</stream:features>"),
                    (f"<iq id='b' type='set'><bind xmlns='urn:ietf:params:xml:ns:xmpp-bind'><resource>r{number}</resource></bind></iq>", r"</iq>"))


SMTP_APP = """\
import asyncio
from aiosmtpd.controller import UnthreadedController
from aiosmtpd.handlers import Message
class Keep(Message):
    def handle_message(self, message):
        with open({folder!r} + "/mail", "a", encoding="utf-8") as file:
            file.write(str(message["subject"]) + chr(10))
loop = asyncio.new_event_loop()
asyncio.set_event_loop(loop)
UnthreadedController(Keep(), hostname="0.0.0.0", port={port}, loop=loop, server_hostname="crane").begin()
loop.run_forever()
"""


class AioSmtpd(Entry):
    name, kind = "aiosmtpd", "mail (Python)"
    packages, programs = ("python3-aiosmtpd",), ("/usr/lib/python3/dist-packages/aiosmtpd",)

    def prepare(self):
        write(self.site / "app.py", SMTP_APP.format(folder=str(self.site), port=self.port))

    def command(self):
        return [PYTHON, "-B", self.site / "app.py"]

    def check(self, address, number):
        return talk(address, ("", r"^220.*\n"), ("EHLO me\r\n", r"^250 .*\n"), ("MAIL FROM:<a@b>\r\n", r"^250.*\n"), ("RCPT TO:<c@d>\r\n", r"^250.*\n"),
                    ("DATA\r\n", r"^354.*\n"), (f"Subject: mail {number}\r\n\r\nbody\r\n.\r\n", r"^250.*\n"), ("QUIT\r\n", r"^221.*\n"))


GEVENT_APP = """\
from gevent import monkey
monkey.patch_all()
import gevent
from gevent.pool import Pool
from gevent.server import StreamServer
def serve(connection, address):
    with connection.makefile("rwb") as stream:
        for line in stream:
            jobs = [gevent.spawn(lambda n=n: (gevent.sleep(0.001 * n), n)[1]) for n in range(5)]
            gevent.joinall(jobs)
            stream.write(line.upper() + str(sum(job.value for job in jobs)).encode() + b"\\n")
            stream.flush()
StreamServer(("0.0.0.0", {port}), serve, spawn=Pool(50)).serve_forever()
"""


class Gevent(Entry):
    name, kind = "gevent", "python"
    packages, programs = ("python3-gevent",), ("/usr/lib/python3/dist-packages/gevent",)

    def prepare(self):
        write(self.site / "app.py", GEVENT_APP.format(port=self.port))

    def command(self):
        return [PYTHON, "-B", self.site / "app.py"]

    def check(self, address, number):
        return talk(address, *((f"line {number} {turn}\n", r"LINE.*\n\d+\n") for turn in range(4)))


class Monit(Entry):
    name, kind = "monit", "monitoring"
    packages, programs = ("monit",), ("/usr/bin/monit",)

    def prepare(self):
        write(self.site / "monitrc", f"set daemon 5\nset log {self.site}/log\nset pidfile {self.site}/pid\nset idfile {self.site}/id\nset statefile {self.site}/state\n"
              f"set httpd port {self.port} and use address 0.0.0.0\n allow 0.0.0.0/0\n allow admin:monit\ncheck file rc with path {self.site}/monitrc\n")
        once("chmod", "600", self.site / "monitrc")

    def command(self):
        return ["/usr/bin/monit", "-I", "-c", self.site / "monitrc"]

    def check(self, address, number):
        text = http(address, "/_ping", "-u", "admin:monit")
        return text + http(address, f"/nothing{number}", "-u", "admin:monit")


class Samba(Entry):
    name, kind = "samba", "smb"
    packages, programs = ("samba", "smbclient"), ("/usr/sbin/smbd",)
    together = 2

    def prepare(self):
        for number in range(4):
            write(self.site / "share" / f"file{number}", f"{number} line\n" * 300)
        write(self.site / "smb.conf", f"[global]\n smb ports = {self.port}\n private dir = {self.site}\n lock directory = {self.site}\n state directory = {self.site}\n"
              f" cache directory = {self.site}\n pid directory = {self.site}\n ncalrpc dir = {self.site}/rpc\n log file = {self.site}/log\n map to guest = Bad User\n"
              f" guest account = nobody\n load printers = no\n disable spoolss = yes\n server role = standalone server\n[share]\n path = {self.site}/share\n guest ok = yes\n read only = no\n force user = root\n")

    def command(self):
        return ["/usr/sbin/smbd", "-F", "--no-process-group", "--debug-stdout", "-s", self.site / "smb.conf"]

    def check(self, address, number):
        with tempfile.TemporaryDirectory() as folder:
            client("smbclient", "-N", "-p", address[1], "-s", self.site / "smb.conf", f"//{address[0]}/share", "-c", f"get file{number % 4} {folder}/one")
            return (pathlib.Path(folder) / "one").read_text(encoding="utf-8")


class Postgrey(Entry):
    name, kind = "postgrey", "mail policy"
    packages, programs = ("postgrey",), ("/usr/sbin/postgrey",)
    volatile = r"X-Greylist: .*"

    def prepare(self):
        (self.site / "db").mkdir()
        once("chmod", "777", self.site, self.site / "db")

    def command(self):
        return ["/usr/sbin/postgrey", f"--inet=0.0.0.0:{self.port}", f"--dbdir={self.site}/db", "--user=nobody", "--group=nogroup", "--delay=1"]

    def check(self, address, number):
        asked = (f"request=smtpd_access_policy\nprotocol_state=RCPT\nprotocol_name=SMTP\nsender=a{number}@crane.test\nrecipient=b@crane.test\n"
                 f"client_address=10.0.{number}.1\nclient_name=unknown\nhelo_name=me\n\n")
        return talk(address, *[(asked, r"action=.*\n\n")])


class Thin(Entry):
    name, kind = "thin", "ruby"
    packages, programs = ("thin",), ("/usr/bin/thin",)

    def prepare(self):
        write(self.site / "config.ru", "run lambda { |env| [200, {'Content-Type' => 'text/plain'}, [env['PATH_INFO'].upcase * 50]] }\n")

    def command(self):
        return ["/usr/bin/thin", "-R", self.site / "config.ru", "-a", "0.0.0.0", "-p", self.port, "-P", self.site / "pid", "start"]

    def check(self, address, number):
        return http(address, f"/page{number}")


class Tomcat(Entry):
    name, kind = "tomcat", "java"
    packages, programs = ("tomcat10", "default-jdk-headless"), ("/usr/share/tomcat10/bin/bootstrap.jar",)
    together = 2

    def prepare(self):
        once("sh", "-c", f"mkdir -p {self.site}/conf {self.site}/logs {self.site}/temp {self.site}/webapps/ROOT && cp /etc/tomcat10/*.xml /etc/tomcat10/*.properties {self.site}/conf/")
        write(self.site / "conf" / "server.xml", f'<Server port="-1"><Service name="Catalina"><Connector port="{self.port}" address="0.0.0.0"/>'
              '<Engine name="Catalina" defaultHost="localhost"><Host name="localhost" appBase="webapps"/></Engine></Service></Server>')
        write(self.site / "webapps" / "ROOT" / "index.jsp", '<%@ page contentType="text/plain" %><%= request.getParameter("w").toUpperCase() %>\n')

    def command(self):
        return ["/usr/bin/java", "-Xmx256m", f"-Dcatalina.base={self.site}", "-Dcatalina.home=/usr/share/tomcat10", f"-Djava.io.tmpdir={self.site}/temp",
                "-cp", "/usr/share/tomcat10/bin/bootstrap.jar:/usr/share/tomcat10/bin/tomcat-juli.jar", "org.apache.catalina.startup.Bootstrap", "start"]

    def check(self, address, number):
        text = http(address, f"/?w=word{number}")
        assert "WORD" in text, text
        return text
