"""Mail, news and chat."""

import re

from entry import Entry, once, talk, write


class Smtp(Entry):
    """A message for a user of its own; then what is refused."""

    kind = "mail"
    user = "root"
    volatile = r"(queued as|id=| [Mm]essage accepted|250 2.0.0 ).*|^220.*|^221.*"

    def check(self, address, number):
        body = "".join(f"line {line}\r\n" for line in range(50))
        return talk(address, ("", r"^220 .*\n"), ("EHLO client.test\r\n", r"^250 .*\n"),
                    (f"MAIL FROM:<sender{number}@crane.test>\r\n", r"^250.*\n"), (f"RCPT TO:<{self.user}@crane.test>\r\n", r"^250.*\n"),
                    ("RCPT TO:<x@elsewhere.test>\r\n", r"^[45]\d\d .*\n"), ("DATA\r\n", r"^354.*\n"),
                    (f"Subject: number {number}\r\n\r\n{body}.\r\n", r"^250.*\n"), ("NOOP\r\n", r"^250.*\n"), ("QUIT\r\n", r"^221.*\n"))


POSTFIX = """\
compatibility_level = 3.6
queue_directory = {site}/queue
data_directory = {site}/data
mail_spool_directory = {site}/mail
maillog_file_prefixes = {site}
maillog_file = {site}/log
myhostname = crane.test
mydestination = crane.test
mynetworks = 127.0.0.2/32
inet_protocols = ipv4
alias_maps =
alias_database =
smtpd_relay_restrictions = reject_unauth_destination
"""


class Postfix(Smtp):
    name = "postfix"
    packages, programs = ("postfix",), ("/usr/sbin/postfix",)
    together = 2

    def prepare(self):
        once("sh", "-c", f"cp -r /etc/postfix {self.site}/etc && mkdir {self.site}/queue {self.site}/data {self.site}/mail && "
             f"chown postfix {self.site}/data && chmod 1777 {self.site}/mail")
        write(self.site / "etc" / "main.cf", POSTFIX.format(site=self.site))
        lines = []
        for line in (self.site / "etc" / "master.cf.proto").read_text().splitlines(True):
            if line.startswith("#"):
                continue
            line = re.sub(r"^smtp(\s+inet)", rf"0.0.0.0:{self.port}\1", line)
            words = line.split()
            if not line[0].isspace() and len(words) >= 8:
                words[4] = "n"  # chroot
                line = " ".join(words) + "\n"
            lines.append(line)
        write(self.site / "etc" / "master.cf", "".join(lines))

    def command(self):
        return ["/usr/sbin/postfix", "-c", self.site / "etc", "start-fg"]


DOVECOT = """\
base_dir = {site}/run
log_path = {site}/log
protocols = imap
ssl = no
disable_plaintext_auth = no
mail_location = maildir:{site}/mail/%u
first_valid_uid = 0
default_internal_user = dovecot
passdb {{
  driver = static
  args = password=secret
}}
userdb {{
  driver = static
  args = uid=nobody gid=nogroup home={site}/mail/%u
}}
service imap-login {{
  inet_listener imap {{
    port = {port}
  }}
  inet_listener imaps {{
    port = 0
  }}
}}
service stats {{
  chroot =
}}
"""


class Dovecot(Entry):
    name, kind = "dovecot", "imap"
    packages, programs = ("dovecot-imapd",), ("/usr/sbin/dovecot",)
    volatile = r"UIDVALIDITY \d+|<\d+>|\([\d.]+ \+ [^)]*\)|APPENDUID \d+|COPYUID \d+|HIGHESTMODSEQ \d+|in \d+\.\d+ secs|INTERNALDATE \"[^\"]*\""

    def prepare(self):
        write(self.site / "dovecot.conf", DOVECOT.format(site=self.site, port=self.port))
        (self.site / "mail").mkdir()
        (self.site / "mail").chmod(0o777)

    def command(self):
        return ["/usr/sbin/dovecot", "-F", "-c", self.site / "dovecot.conf"]

    def check(self, address, number):
        message = f"Subject: number {number}\r\n\r\n" + "text\r\n" * 50
        return talk(address, ("", r"^\* OK.*\n"), (f"a LOGIN user{number} secret\r\n", r"^a OK.*\n"),
                    ("b CREATE box\r\n", r"^b OK.*\n"), (f"c APPEND box {{{len(message)}}}\r\n", r"^\+.*\n"),
                    (message + "\r\n", r"^c OK.*\n"), ("d SELECT box\r\n", r"^d OK.*\n"), ("e SEARCH TEXT number\r\n", r"^e OK.*\n"),
                    ("f FETCH 1 (UID RFC822.SIZE BODY[])\r\n", r"^f OK.*\n"), ("g LOGOUT\r\n", r"^g OK.*\n"))


class Irc(Entry):
    kind = "irc"
    volatile = r"(?:^(?:.* (?:00[2-5]|25\d|26\d|37\d|422|042|396|333|NOTICE|MODE) .*|PING.*|ERROR.*)\n?)+"

    def check(self, address, number):
        """Two users in a channel of their own."""
        room, one = f"#room{number}", f"user{number}"
        return talk(address, (f"NICK {one}\r\nUSER {one} 0 * :{one}\r\n", r" (422|376) .*\n"), (f"JOIN {room}\r\n", r" 366 .*\n"),
                    (f"TOPIC {room} :about {number}\r\n", r" TOPIC .*\n"), (f"WHO {room}\r\n", r" 315 .*\n"),
                    (f"TOPIC {room}\r\n", r" 332 .*\n"), ("QUIT\r\n", r"ERROR.*\n"))


class Ngircd(Irc):
    name = "ngircd"
    packages, programs = ("ngircd",), ("/usr/sbin/ngircd",)

    def prepare(self):
        write(self.site / "ngircd.conf", f"[Global]\nName = irc.crane.test\nInfo = test\nPorts = {self.port}\nListen = 0.0.0.0\nMotdPhrase = hello\n"
              "ServerUID = irc\nServerGID = irc\n[Limits]\nMaxConnectionsIP = 0\n[Options]\nDNS = no\nIdent = no\nPAM = no\n")

    def command(self):
        return ["/usr/sbin/ngircd", "-n", "-f", self.site / "ngircd.conf"]


INSPIRCD = """\
<server name="irc.crane.test" description="test" network="Test" id="97K">
<admin name="a" nick="a" email="a@crane.test">
<bind address="0.0.0.0" port="{port}" type="clients">
<connect allow="*" resolvehostnames="no" maxchans="20" timeout="60" pingfreq="120" localmax="1000" globalmax="1000" hardsendq="1M" softsendq="8192" recvq="8192" commandrate="100000" fakelag="no" threshold="1000">
<options splitwhois="no" ircumsgprefix="no">
<pid file="{site}/pid">
<path configdir="{site}" datadir="{site}" logdir="{site}" runtimedir="{site}">
<log method="file" type="*" level="default" target="{site}/ircd.log">
<dns server="127.0.0.1" timeout="1">
"""


class Inspircd(Irc):
    name = "inspircd"
    packages, programs = ("inspircd",), ("/usr/sbin/inspircd",)

    def prepare(self):
        write(self.site / "inspircd.conf", INSPIRCD.format(site=self.site, port=self.port))

    def command(self):
        return ["/usr/sbin/inspircd", "--nofork", "--runasroot", "--config", self.site / "inspircd.conf"]


PROSODY = """\
daemonize = false
pidfile = "{site}/pid"
data_path = "{site}"
plugin_paths = {{}}
run_as_root = true
modules_enabled = {{ "roster", "saslauth", "disco", "private", "ping", "version" }}
allow_unencrypted_plain_auth = true
c2s_require_encryption = false
authentication = "anonymous"
c2s_ports = {{ {port} }}
c2s_interfaces = {{ "*" }}
s2s_ports = {{}}
log = {{ {{ levels = {{ min = "info" }}, to = "console" }} }}
VirtualHost "crane.test"
"""


class Prosody(Entry):
    name, kind = "prosody", "xmpp (Lua)"
    packages, programs = ("prosody",), ("/usr/bin/prosody",)

    def prepare(self):
        write(self.site / "prosody.cfg.lua", PROSODY.format(site=self.site, port=self.port))

    def command(self):
        return ["/usr/bin/prosody", "-F", "--config", self.site / "prosody.cfg.lua"]

    def check(self, address, number):
        stream = ("<?xml version='1.0'?><stream:stream to='crane.test' version='1.0' xmlns='jabber:client' "
                  "xmlns:stream='http://etherx.jabber.org/streams'>")
        heard = talk(address, (stream, "</stream:features>"),
                    ("<auth xmlns='urn:ietf:params:xml:ns:xmpp-sasl' mechanism='ANONYMOUS'/>", "<success"), (stream, "</stream:features>"),
                    (f"<iq type='set' id='b'><bind xmlns='urn:ietf:params:xml:ns:xmpp-bind'><resource>r{number}</resource></bind></iq>",
                     "</iq>"),
                    (f"<iq type='set' id='p'><query xmlns='jabber:iq:private'><x xmlns='y'>{number}</x></query></iq>", "<iq[^>]*/>"),
                    ("<iq type='get' id='q'><query xmlns='jabber:iq:private'><x xmlns='y'/></query></iq>", "</iq>"),
                    ("</stream:stream>", "</stream:stream>"))
        # The order of features and attributes is that of a table with a random seed.
        return " ".join(re.findall(r"<success|<x xmlns='y'>\d+</x>", heard))
