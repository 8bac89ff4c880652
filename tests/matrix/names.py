"""Directories, names, and what tells clients who they are."""

from entry import Entry, client, once, talk, write

ZONE = """\
$ORIGIN crane.test.
$TTL 3600
@ IN SOA ns hostmaster 1 3600 600 86400 300
@ IN NS ns
ns IN A 127.0.0.1
@ IN MX 10 mail
""" + "".join(f"host{number} IN A 10.0.0.{number}\nhost{number} IN TXT \"{'text ' * 20}\"\n" for number in range(1, 200))


class Dns(Entry):
    """Over TCP five queries on one connection, one more, and a transfer; over UDP five and one that is too long for it."""

    kind = "dns"
    transfer = True
    more = ("bind9-dnsutils",)

    def prepare(self):
        write(self.site / "zone", ZONE)
        self.configure()

    def configure(self):
        pass

    def check(self, address, number):
        words = ["dig", "+tcp", "+noall", "+answer", "+nocookie", "+keepopen", f"@{address[0]}", "-p", address[1]]
        asked = [f"host{(number + turn) % 199 + 1}.crane.test" for turn in range(5)]
        text = client(*words, *(word for name in asked for word in (name, "A"))) + client(*words, asked[0], "TXT")
        if self.transfer:
            text += str(len(client(*words, "crane.test", "AXFR")))
        # Its sockets share ports (SO_REUSEPORT), even with those of others at the same time: an address for each session.
        words[1:2] = ["-b", f"127.78.{number // 250}.{number % 250 + 1}", "+notcp", "+ignore", "+tries=1", "+time=20"]
        return text + client(*words, *(word for name in asked for word in (name, "A"))) + client(*words, "+bufsize=512", asked[1], "TXT")


class Bind(Dns):
    name = "bind9"
    packages, programs = ("bind9", "bind9-dnsutils"), ("/usr/sbin/named",)

    def configure(self):
        write(self.site / "named.conf", f'options {{ directory "{self.site}"; listen-on port {self.port} {{ any; }}; listen-on-v6 {{ none; }}; '
              f'recursion no; pid-file "{self.site}/pid"; session-keyfile "{self.site}/key"; allow-transfer {{ any; }}; transfers-out 100; }}; controls {{ }};\n'
              f'zone "crane.test" {{ type master; file "{self.site}/zone"; }};\n')

    def command(self):
        return ["/usr/sbin/named", "-g", "-c", self.site / "named.conf", "-n", "2"]


class Unbound(Dns):
    name, transfer = "unbound", False
    packages, programs = ("unbound", "bind9-dnsutils"), ("/usr/sbin/unbound",)

    def configure(self):
        data = "".join(f'    local-data: "host{n}.crane.test. 3600 IN A 10.0.0.{n}"\n    local-data: "host{n}.crane.test. 3600 IN TXT text"\n'
                       for n in range(1, 200))
        write(self.site / "unbound.conf", f'server:\n    interface: 0.0.0.0\n    port: {self.port}\n    num-threads: 2\n    username: ""\n'
              f'    chroot: ""\n    directory: "{self.site}"\n    pidfile: "{self.site}/pid"\n    access-control: 0.0.0.0/0 allow\n'
              f'    use-syslog: no\n    do-ip6: no\n    local-zone: "crane.test." static\n{data}remote-control:\n    control-enable: no\n')

    def command(self):
        return ["/usr/sbin/unbound", "-d", "-c", self.site / "unbound.conf"]


class Nsd(Dns):
    name = "nsd"
    packages, programs = ("nsd", "bind9-dnsutils"), ("/usr/sbin/nsd",)

    def configure(self):
        write(self.site / "nsd.conf", f'server:\n    ip-address: 0.0.0.0@{self.port}\n    server-count: 2\n    username: nsd\n    zonesdir: "{self.site}"\n'
              f'    pidfile: "{self.site}/pid"\n    database: ""\n    xfrdfile: "{self.site}/xfrd"\n    zonelistfile: "{self.site}/list"\n'
              f'    xfrdir: "{self.site}"\n    do-ip6: no\n'
              f'remote-control:\n    control-enable: no\nzone:\n    name: crane.test\n    zonefile: zone\n    provide-xfr: 0.0.0.0/0 NOKEY\n')
        once("chmod", "777", self.site)

    def command(self):
        return ["/usr/sbin/nsd", "-d", "-c", self.site / "nsd.conf"]


class Knot(Dns):
    name = "knot"
    packages, programs = ("knot", "bind9-dnsutils"), ("/usr/sbin/knotd",)

    def configure(self):
        write(self.site / "knot.conf", f'server:\n    listen: 0.0.0.0@{self.port}\n    rundir: "{self.site}"\n    tcp-workers: 2\n    udp-workers: 1\n'
              f'    background-workers: 1\n'
              f'database:\n    storage: "{self.site}/db"\nlog:\n  - target: stderr\n    any: info\nacl:\n  - id: all\n    action: transfer\n'
              f'zone:\n  - domain: crane.test\n    file: "{self.site}/zone"\n    acl: all\n')

    def command(self):
        return ["/usr/sbin/knotd", "-c", self.site / "knot.conf"]


class Dnsmasq(Dns):
    name, transfer = "dnsmasq", False
    needs = ("`--own-address` for each address of the hosts, or bind-interfaces: else it serves no address that no "
             "interface has")
    packages, programs = ("dnsmasq", "bind9-dnsutils"), ("/usr/sbin/dnsmasq",)

    def configure(self):
        write(self.site / "hosts", "".join(f"10.0.0.{number} host{number}.crane.test\n" for number in range(1, 200)))

    def command(self):
        return ["/usr/sbin/dnsmasq", "-k", "-C", "/dev/null", "-p", self.port, "-R", "-h", "-H", self.site / "hosts", "-u", "root", "-z",
                "-x", self.site / "pid", "--log-facility=-"]


class PowerDns(Dns):
    name = "pdns"
    packages, programs = ("pdns-server", "pdns-backend-bind", "bind9-dnsutils"), ("/usr/sbin/pdns_server",)

    def configure(self):
        write(self.site / "named.conf", f'zone "crane.test" {{ type master; file "{self.site}/zone"; }};\n')
        write(self.site / "pdns.conf", f"launch=bind\nbind-config={self.site}/named.conf\nlocal-port={self.port}\nlocal-address=0.0.0.0\n"
              f"socket-dir={self.site}\nguardian=no\ndaemon=no\nallow-axfr-ips=0.0.0.0/0\nsecurity-poll-suffix=\n")

    def command(self):
        return ["/usr/sbin/pdns_server", f"--config-dir={self.site}"]


class Slapd(Entry):
    name, kind = "slapd", "ldap"
    packages, programs = ("slapd", "ldap-utils"), ("/usr/sbin/slapd",)

    def prepare(self):
        (self.site / "db").mkdir()
        write(self.site / "slapd.conf", f"include /etc/ldap/schema/core.schema\nmodulepath /usr/lib/ldap\nmoduleload back_mdb\npidfile {self.site}/pid\n"
              f"database mdb\nmaxsize 33554432\nsuffix dc=crane,dc=test\nrootdn cn=admin,dc=crane,dc=test\nrootpw secret\ndirectory {self.site}/db\n"
              "index objectClass eq\n")
        ldif = "dn: dc=crane,dc=test\nobjectClass: dcObject\nobjectClass: organization\no: crane\ndc: crane\n"
        once("/usr/sbin/slapadd", "-f", self.site / "slapd.conf", data=ldif.encode())

    def command(self):
        return ["/usr/sbin/slapd", "-d", "0", "-f", self.site / "slapd.conf", "-h", f"ldap://0.0.0.0:{self.port}"]

    def check(self, address, number):
        where = ["-x", "-H", f"ldap://{address[0]}:{address[1]}", "-D", "cn=admin,dc=crane,dc=test", "-w", "secret"]
        entries = "".join(f"dn: cn=p{number}-{n},dc=crane,dc=test\nobjectClass: person\ncn: p{number}-{n}\nsn: s{number}\n\n" for n in range(5))
        text = client("ldapadd", *where, data=entries)
        text += client("ldapmodify", *where, data=f"dn: cn=p{number}-1,dc=crane,dc=test\nchangetype: modify\nreplace: sn\nsn: t{number}\n")
        return text + client("ldapsearch", *where, "-LLL", "-b", "dc=crane,dc=test", f"(|(sn=s{number})(sn=t{number}))")


class Dictd(Entry):
    name, kind = "dictd", "dictionary"
    packages, programs = ("dictd", "dictfmt"), ("/usr/sbin/dictd",)
    volatile = r"^220.*|\[d/m/c.*"

    def prepare(self):
        words = "".join(f"{word}\n   the meaning of {word}\n" for word in ("apple", "bread", "crane"))
        write(self.site / "words", words)
        once("sh", "-c", f"cd {self.site} && dictfmt -f --without-headword words < words || dictfmt -c5 words < words")
        write(self.site / "dictd.conf", f'global {{ port {self.port} }}\naccess {{ allow * }}\n'
              f'database words {{ data "{self.site}/words.dict" index "{self.site}/words.index" }}\n')

    def command(self):
        return ["/usr/sbin/dictd", "-d", "nodetach", "-c", self.site / "dictd.conf", "--pid-file", self.site / "pid"]

    def check(self, address, number):
        return talk(address, ("", r"^220.*\n"), ("SHOW DB\r\n", r"^250.*\n"), (f"MATCH * prefix {'abc'[number % 3]}\r\n", r"^(250|552).*\n"),
                    ("QUIT\r\n", r"^221.*\n"))

