"""The servers under attack: Debian's, with what their operators would set."""

import os

from support import servers
from support.paths import HOST_CLOCK

CGI = {
    "eat": "#!/bin/sh\nn=$(wc -c)\necho Content-Type: text/plain\necho\necho $n\n",
    "abort": "#!/bin/sh\nkill -ABRT $$\n",
    "overflow": "#!/usr/bin/python3\nimport ctypes\nctypes.string_at(8)\n",
    "parent": "#!/bin/sh\nkill -KILL $PPID\n",
}

PREFORK = """\
ScriptAlias /cgi/ {site}/cgi/
<Directory {site}/cgi>
    Require all granted
</Directory>
<IfModule mpm_prefork_module>
    StartServers 8
    MinSpareServers 8
    MaxSpareServers 24
    MaxRequestWorkers 80
    ServerLimit 80
    MaxConnectionsPerChild 500
</IfModule>
Timeout 20
KeepAliveTimeout 2
"""


class PreforkApache(servers.Apache):
    """Debian's Apache with its prefork engine, a process for each connection, and CGI scripts."""

    name = "apache-prefork"

    def prepare(self):
        super().prepare()
        self.environment["LD_PRELOAD"] = str(HOST_CLOCK)
        for name, text in CGI.items():
            servers.write(self.site / "cgi" / name, text, 0o755)
        enabled = self.site / "conf" / "mods-enabled"
        for name in ("mpm_event.load", "mpm_event.conf", "mpm_worker.load", "mpm_worker.conf"):
            (enabled / name).unlink(missing_ok=True)
        servers.write(enabled / "mpm_prefork.load",
                      "LoadModule mpm_prefork_module /usr/lib/apache2/modules/mod_mpm_prefork.so\n")
        servers.write(enabled / "zz-cgi.load", "LoadModule cgi_module /usr/lib/apache2/modules/mod_cgi.so\n")
        servers.write(enabled / "zz-prefork.conf", PREFORK.format(site=self.site))
        os.utime(self.site / "cgi", (servers.SITE_TIME, servers.SITE_TIME))


class Redis(servers.Redis):
    """What it has is on its disk when it is started again."""

    def command(self):
        words = super().command()
        words[words.index("--appendonly") + 1] = "yes"
        return words

    def prepare(self):
        super().prepare()
        self.environment["LD_PRELOAD"] = str(HOST_CLOCK)
