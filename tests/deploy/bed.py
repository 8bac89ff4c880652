"""Hosts for the deployment: system containers of a clean Debian 12, each with an init, an address and a root of its own.

Their roots are copies of one tree, which share its blocks (XFS in a file). The tree is made once for what it is to hold, and
kept. Packages that the hosts will install are in their apt's cache already: the hosts reach each other and this machine's
network namespace, and nothing else.
"""

import ctypes
import fcntl
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import time

SUITE = "bookworm"
SYSTEM = "systemd,systemd-sysv,dbus,openssh-server,python3,python3-apt,iproute2,procps"
# What the playbooks install besides Crane's package and what that depends on.
FETCHED = ["logrotate", "apache2", "mariadb-server", "keepalived"]
# A mirror that does not answer is told of soon.
APT = ["Acquire::http::Timeout=20", "Acquire::https::Timeout=20", "Acquire::Retries=2"]
NET = "10.66.7"
DISK_BYTES = 40 << 30  # sparse
CLONE_NEWNET = 0x40000000
EXTRAS = ("/etc/systemd/system/multi-user.target.wants", "/etc/systemd/system/timers.target.wants")

CONFIG = """\
lxc.uts.name = {name}
lxc.rootfs.path = dir:{root}
lxc.init.cmd = /sbin/init
lxc.net.0.type = veth
lxc.net.0.veth.pair = {veth}
lxc.net.0.script.up = {up}
lxc.net.0.name = eth0
lxc.net.0.flags = up
lxc.net.0.ipv4.address = {address}/24
lxc.mount.auto = proc:mixed sys:mixed
lxc.mount.entry = cgroup2 sys/fs/cgroup cgroup2 rw,nosuid,nodev,noexec 0 0
lxc.autodev = 1
lxc.hook.autodev = {devices}
lxc.tty.max = 0
lxc.pty.max = 1024
lxc.console.path = none
lxc.cap.drop = sys_module sys_rawio mac_admin mac_override
lxc.signal.halt = SIGRTMIN+3
"""

# A base image is mounted by way of a loop device, which a host has.
DEVICES = """\
cd "$LXC_ROOTFS_MOUNT/dev" && mknod loop-control c 10 237 && for n in $(seq 0 63); do mknod "loop$n" b 7 "$n" || exit 1; done
"""


class BedError(Exception):
    pass


def run(*words, timeout=120, check=True, **how):
    done = subprocess.run([str(word) for word in words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          timeout=timeout, check=False, text=True, **how)
    if check and done.returncode != 0:
        raise BedError(f"{' '.join(str(word) for word in words)} exited with {done.returncode}:\n{done.stdout[-4000:]}")
    return done.stdout


def wait_until(condition, seconds, what):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise BedError(f"not within {seconds} s: {what}")
        time.sleep(0.05)


def depended_on(package):
    """The names of the packages that Crane's depends on, the first of alternatives."""
    names = run("dpkg-deb", "--field", package, "Depends").split(",")
    return [re.match(r"\s*([^\s(:|]+)", name).group(1) for name in names]


class Disk:
    """The file system that the roots are on, in a file that is kept."""

    def __init__(self, folder, at):
        self.file, self.at = folder / "hosts.xfs", at
        self.at.mkdir(exist_ok=True)
        if not self.file.exists():
            with open(self.file, "wb") as made:
                made.truncate(DISK_BYTES)
            run("mkfs.xfs", "-q", "-m", "reflink=1", self.file)
        run("mount", "-o", "loop", self.file, self.at)

    def base(self, key, package):
        """The tree that all roots are copies of."""
        fetched = depended_on(package) + FETCHED
        recipe = hashlib.sha256(repr((SUITE, SYSTEM, fetched, key)).encode()).hexdigest()
        tree, mark = self.at / "base", self.at / "base.recipe"
        if mark.exists() and mark.read_text() == recipe:
            return tree
        shutil.rmtree(tree, ignore_errors=True)
        mark.unlink(missing_ok=True)
        quick = [f"--aptopt={option.replace('=', ' ')}" for option in APT]
        run("mmdebstrap", "--mode=root", "--variant=minbase", "--aptopt=APT::Install-Recommends \"false\"", *quick,
            f"--include={SYSTEM}", SUITE, tree, timeout=600)
        shutil.copy("/etc/resolv.conf", tree / "etc/resolv.conf")
        for words in (["update", "-q"], ["install", "-y", "-q", "--download-only", "--no-install-recommends", *fetched]):
            run("chroot", tree, "apt-get", "-o", "Binary::apt-get::APT::Keep-Downloaded-Packages=true", *words, timeout=600)
        (tree / "etc/resolv.conf").write_text("")
        (tree / "etc/machine-id").write_text("")
        (tree / "root/.ssh").mkdir(mode=0o700, exist_ok=True)
        (tree / "root/.ssh/authorized_keys").write_text(key)
        for folder in EXTRAS:
            for link in (tree / folder.lstrip("/")).glob("*"):
                if link.name in ("apt-daily.timer", "apt-daily-upgrade.timer", "dpkg-db-backup.timer", "e2scrub_all.timer",
                                 "fstrim.timer", "e2scrub_reap.service"):
                    link.unlink()
        mark.write_text(recipe)
        return tree

    def close(self):
        for path in self.at.glob("h*"):
            shutil.rmtree(path, ignore_errors=True)
        run("umount", self.at)


class Host:
    def __init__(self, bed, number):
        self.bed, self.number, self.name = bed, number, f"h{number}"
        self.lxc_name = f"{bed.name}-h{number}"
        self.address = f"{NET}.{number}"
        self.root = bed.disk.at / self.name
        self.config = bed.work / f"{self.name}.conf"

    def make(self):
        shutil.rmtree(self.root, ignore_errors=True)
        run("cp", "-a", "--reflink=always", self.bed.base, self.root)
        (self.root / "etc/hostname").write_text(self.name + "\n")
        self.config.write_text(CONFIG.format(name=self.name, root=self.root, veth=f"cr{os.getpid() % 10000}v{self.number}",
                                             up=self.bed.work / "up.sh",
                                             devices=self.bed.work / "devices.sh", address=self.address))

    def start(self):
        run("lxc-start", "-P", self.bed.work / "lxc", "-n", self.lxc_name, "-f", self.config, "-d")

    def wait(self):
        """Until its init says that all is up, over ssh."""
        def running():
            return "running" in self.ssh("systemctl is-system-running", check=False).split()
        wait_until(running, 60, f"{self.name} is up")

    def alive(self):
        return "RUNNING" in run("lxc-info", "-P", self.bed.work / "lxc", "-n", self.lxc_name, "-s", check=False)

    def kill(self):
        run("lxc-stop", "-P", self.bed.work / "lxc", "-n", self.lxc_name, "-k", check=False)

    def ssh(self, command, check=True, timeout=120):
        return run("ssh", *self.bed.ssh_options, f"root@{self.address}", command, check=check, timeout=timeout)


class Bed:
    """From its making on, this process is in the hosts' network."""

    def __init__(self, folder, work, package):
        self.work, self.name, self.hosts = work, f"crane-deploy-{os.getpid()}", {}
        (work / "lxc").mkdir(parents=True)
        key = folder / "key"
        folder.mkdir(parents=True, exist_ok=True)
        self.lock = open(folder / "lock", "w", encoding="ascii")  # pylint: disable=consider-using-with
        try:
            fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BedError(f"{folder} is in use: another deploy-test runs") from None
        if not key.exists():
            run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "crane deploy-test", "-f", key)
        self.key = key
        self.ssh_options = ["-i", key, "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR",
                            "-o", "ConnectTimeout=5", "-o", "BatchMode=yes"]
        self.disk = Disk(folder, work / "disk")
        try:
            self.base = self.disk.base((folder / "key.pub").read_text(), package)
        except BaseException:
            self.disk.close()
            raise
        for name, text in (("up.sh", "exec ip link set \"$5\" master br0 up\n"), ("devices.sh", DEVICES)):
            (work / name).write_text("#!/bin/sh\n" + text)
            (work / name).chmod(0o755)
        self._enter_network()

    def _enter_network(self):
        run("ip", "netns", "add", self.name)
        libc = ctypes.CDLL(None, use_errno=True)
        with open(f"/run/netns/{self.name}", "rb") as there:
            if libc.setns(there.fileno(), CLONE_NEWNET) != 0:
                raise BedError(f"setns: {os.strerror(ctypes.get_errno())}")
        for words in (["set", "lo", "up"], ["add", "br0", "type", "bridge"], ["set", "br0", "up"]):
            run("ip", "link", *words)
        run("ip", "addr", "add", f"{NET}.254/24", "dev", "br0")

    def host(self, number):
        """A host that has had nothing yet; one of that number is gone then."""
        if number in self.hosts:
            self.hosts[number].kill()
        one = self.hosts[number] = Host(self, number)
        one.make()
        one.start()
        return one

    def close(self):
        for host in self.hosts.values():
            host.kill()
        run("ip", "netns", "del", self.name, check=False)
        self.disk.close()


def work_folder():
    path = pathlib.Path(f"/var/tmp/crane-deploy-{os.getpid()}")
    path.mkdir(mode=0o700)
    return path
