// What a contained server may not do: tried from inside, by a server that is root there.
#include <linux/capability.h>
#include <poll.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <thread>

#include "checkpoint/confinement.hpp"
#include "checkpoint/container_config.hpp"
#include "checkpoint/disk_quota.hpp"
#include "checkpoint/domain_file.hpp"
#include "checkpoint/domain_host.hpp"
#include "checkpoint/fresh_root.hpp"
#include "checkpoint/hidden_paths.hpp"
#include "checkpoint/mounts.hpp"
#include "checkpoint/processes.hpp"
#include "checkpoint/system_calls.hpp"

namespace fs = std::filesystem;
using namespace crane::checkpoint;

namespace {

struct Server {
    std::string folder;
    DomainSpec spec;
    explicit Server(const std::string& script) {
        char name[] = "/var/tmp/crane-confined-XXXXXX";
        folder = ::mkdtemp(name);
        ::chmod(folder.c_str(), 0755);
        spec.name = "crane-test-" + folder.substr(folder.size() - 6);
        spec.state_dir = folder + "/r1";
        fs::create_directories(spec.state_dir);
        spec.argv = {"/bin/sh", "-c", script};
        spec.cwd = "/";
        spec.environment = {"PATH=/usr/sbin:/usr/bin:/sbin:/bin"};
        spec.shim_path = "/lib/x86_64-linux-gnu/libdl.so.2";  // stands in for the shim: present, harmless
        spec.init_path = fs::read_symlink("/proc/self/exe").parent_path().string() + "/crane-init";
    }
    ~Server() {
        DomainHost::clean(spec);
        for (const std::string& one : mounted) ::umount2(one.c_str(), MNT_DETACH);
        std::error_code ignored;
        fs::remove_all(folder, ignored);
    }
    void mount(const std::string& image, const std::string& point) {
        fs::create_directories(point);
        mount_limited(image, point, {.bytes = 32 << 20});
        mounted.push_back(point);
    }
    // What the script printed, after its end.
    std::string run() {
        DomainHost host(spec);
        host.start();
        weaknesses = host.weaknesses();
        pollfd wait{host.exit_fd(), POLLIN, 0};
        REQUIRE(::poll(&wait, 1, 30000) == 1);
        host.trim_output();
        exit = host.poll_exit();
        return read_text_file(spec.state_dir + "/stdout");
    }
    std::vector<std::string> weaknesses, mounted;
    std::optional<ExitReport> exit;
};

bool can_contain() {
    const bool can = ::geteuid() == 0 && fs::exists("/usr/bin/lxc-start");
    if (!can) WARN("no root or no LXC: containers are not tested");
    return can;
}

}  // namespace

TEST_CASE("capabilities and system calls are known by their names", "[checkpoint]") {
    CHECK(capability_number("CAP_CHOWN") == 0);
    CHECK(capability_number("sys_admin") == 21);
    CHECK(capability_number("CAP_CHECKPOINT_RESTORE") == 40);
    CHECK(capability_number("CAP_EVERYTHING") == -1);
    CHECK(is_system_call("keyctl"));
    CHECK_FALSE(is_system_call("no_such_call"));
}

TEST_CASE("an exception that nobody can make since craned was started without it is told of",
          "[checkpoint]") {
    const Confinement asked = {{"net_raw", "CAP_KILL"}, {"keyctl"}, {}, true};
    if (::geteuid() != 0) return;  // nothing is left out of anybody else's set for a test
    CHECK(missing_exceptions(asked).empty());
    std::vector<std::string> missing;
    // What a thread gives up the others keep.
    std::thread([&] {
        ::prctl(PR_CAPBSET_DROP, CAP_NET_RAW, 0, 0, 0);
        ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        missing = missing_exceptions(asked);
        CHECK(missing_exceptions({{"CAP_KILL"}, {}, {}, false}).empty());
    }).join();
    REQUIRE(missing.size() == 2);
    CHECK_THAT(missing[0], Catch::StartsWith("the server does not get CAP_NET_RAW") &&
                               Catch::Contains("CapabilityBoundingSet=CAP_NET_RAW"));
    CHECK_THAT(missing[1], Catch::Contains("NoNewPrivileges=no"));
}

TEST_CASE("a domain file says whom the server runs as and what it may", "[checkpoint]") {
    DomainFile domain;
    domain.argv = {"server"};
    domain.inherited = {1, 2};
    domain.identity = Identity{33, 34, {33, 100}};
    domain.confinement = {{"CAP_NET_RAW"}, {"keyctl"}, {}, true};
    const auto back = decode_domain_file(encode(domain));
    REQUIRE(back);
    REQUIRE(back->identity);
    CHECK(back->identity->uid == 33);
    CHECK(back->identity->gid == 34);
    CHECK(back->identity->groups == std::vector<gid_t>{33, 100});
    CHECK(back->inherited == domain.inherited);
    CHECK(back->confinement == domain.confinement);
    CHECK_FALSE(decode_domain_file(encode(DomainFile{}))->identity);
}

TEST_CASE("a container has the harmless devices and those it was given", "[checkpoint]") {
    ContainerPlan plan;
    plan.hostname = "crane";
    plan.layers = {{"/", "/s/u", "/s/w", "/"}};
    plan.binds = {{"/s/shared", "/run/crane", false}};
    CHECK_THAT(container_config(plan), !Catch::Contains(".devices."));  // a host without the controller
    plan.devices_controller = "cgroup2";
    plan.devices = {{"/dev/fuse", 'c', 10, 229}};
    const std::string text = container_config(plan);
    CHECK_THAT(text, Catch::Contains("lxc.cgroup2.devices.deny = a\n"));
    CHECK_THAT(text, Catch::Contains("lxc.cgroup2.devices.allow = c 1:3 rwm\n"));
    CHECK_THAT(text, Catch::Contains("lxc.cgroup2.devices.allow = c 10:229 rw\n"));
    CHECK_THAT(text, Catch::Contains("lxc.mount.entry = /dev/fuse dev/fuse none bind,create=file 0 0\n"));
    CHECK_THAT(text, Catch::Contains("/s/shared run/crane none bind,ro 0 0\n"));
}

TEST_CASE("homes are hidden but for what the command names", "[checkpoint]") {
    char name[] = "/var/tmp/crane-homes-XXXXXX";
    const std::string top = ::mkdtemp(name), homes = top + "/home", root = top + "/root";
    for (const char* folder : {"/home/alice/.ssh", "/home/alice/app", "/home/bob", "/root/.ssh", "/state"})
        fs::create_directories(top + folder);
    std::ofstream(homes + "/alice/app/server.conf") << "x";
    std::ofstream(root + "/server.conf") << "x";
    DomainSpec spec;
    spec.state_dir = top + "/state";
    spec.argv = {"/bin/sh"};
    const auto hides = [&](const std::string& path) {
        const auto hidden = hidden_paths(spec, homes, root);
        return std::ranges::any_of(hidden, [&](const std::string& one) { return is_below(path, one); });
    };
    spec.cwd = root;  // a shell of root's, from which nothing is named
    CHECK(hides(root));
    CHECK(hides(homes));
    CHECK(hides(spec.state_dir));
    CHECK(hides("/etc/shadow"));
    spec.argv = {"/bin/sh", "server.conf"};
    CHECK_FALSE(hides(root + "/server.conf"));
    CHECK(hides(root + "/.ssh"));
    spec.argv = {"/bin/sh", "--config=" + homes + "/alice/app/server.conf"};
    CHECK_FALSE(hides(homes + "/alice/app"));
    CHECK(hides(homes + "/alice/.ssh"));
    CHECK(hides(homes + "/bob"));
    spec.shown = {homes, "/etc/shadow"};
    CHECK_FALSE(hides(homes + "/bob"));
    CHECK_FALSE(hides("/etc/shadow"));
    spec.hidden = {homes + "/bob"};
    CHECK(hides(homes + "/bob"));
    fs::remove_all(top);
}

TEST_CASE("a confined server has few capabilities, a filter, and gains nothing by exec",
          "[checkpoint][root]") {
    if (!can_contain()) return;
    Server server("grep -E '^(CapEff|CapBnd|NoNewPrivs|Seccomp):' /proc/self/status | tr '\\t\\n' '  '");
    const std::string found = server.run();
    CHECK_THAT(found, Catch::Contains("CapEff: 00000000200445fb"));
    CHECK_THAT(found, Catch::Contains("CapBnd: 00000000200445fb"));
    CHECK_THAT(found, Catch::Contains("NoNewPrivs: 1"));
    CHECK_THAT(found, Catch::Contains("Seccomp: 2"));
    for (const std::string& weakness : server.weaknesses) UNSCOPED_INFO(weakness);
    CHECK(server.weaknesses.empty());
}

TEST_CASE("a confined server cannot write to the kernel or see the host's secrets", "[checkpoint][root]") {
    if (!can_contain()) return;
    Server server(
        "for f in /proc/sys/kernel/core_pattern /proc/sysrq-trigger /sys/kernel/mm/ksm/run "
        "/proc/sys/vm/drop_caches; "
        "do (echo 0 >>$f) 2>/dev/null && echo wrote $f; done; "
        "for f in /etc/shadow /etc/gshadow /proc/kcore /proc/kallsyms /proc/keys; "
        "do [ -n \"$(head -c 1 $f 2>/dev/null | tr '\\0' x)\" ] && echo read $f; done; "
        "ls -A /root /home /sys/firmware 2>/dev/null | grep -v : ; "
        "mknod /var/tmp/disk b 7 0 2>/dev/null && echo made a device; "
        "mount -t tmpfs none /mnt 2>/dev/null && echo mounted; "
        "unshare -Ur true 2>/dev/null && echo a namespace; "
        "ls /dev | tr '\\n' ' '; cat /run/crane-init/exit-status; echo x 2>/dev/null >/run/crane/libcrane.so "
        "&& echo wrote; "
        "true");
    const std::string found = server.run();
    CHECK_THAT(found, !Catch::Contains("wrote") && !Catch::Contains("read ") && !Catch::Contains("made"));
    CHECK_THAT(found, !Catch::Contains("mounted") && !Catch::Contains("a namespace"));
    CHECK_THAT(found, !Catch::Contains("kmsg") && !Catch::Contains("loop"));
    CHECK_THAT(found, Catch::Contains("full") && Catch::Contains("urandom") && Catch::Contains("ptmx"));
    REQUIRE(server.exit);
    CHECK(server.exit->known);
}

TEST_CASE("a start script becomes another user though passwords are hidden", "[checkpoint][root]") {
    if (!can_contain()) return;
    Server server("su nobody -s /bin/sh -c 'id -un'; getent passwd root | cut -d: -f1,2,3; cat /etc/shadow");
    CHECK(server.run() == "nobody\nroot:*:0\n");
    server.spec.shown = {"/etc/shadow"};
    server.spec.argv[2] = "getent passwd root | cut -d: -f1,2,3";
    CHECK_THAT(server.run(), Catch::EndsWith("root:x:0\n"));
}

TEST_CASE("a state directory that is a mount point is not seen inside", "[checkpoint][root]") {
    if (!can_contain()) return;
    Server server("ls -A \"$STATE\"; echo end");
    server.spec.environment.push_back("STATE=" + server.spec.state_dir);
    server.mount(server.folder + "/image", server.spec.state_dir);
    std::ofstream(server.spec.state_dir + "/replica.key") << "secret";
    CHECK(server.run() == "end\n");
}

TEST_CASE("the disk quota of another domain is not seen inside", "[checkpoint][root]") {
    if (!can_contain()) return;
    Server server("ls -A \"$OTHER\"; echo end");
    const std::string other = server.folder + "/other/container";
    server.spec.environment.push_back("OTHER=" + other);
    server.mount(other + ".image", other);
    std::ofstream(other + "/secret") << "secret";
    CHECK(server.run() == "end\n");
}

TEST_CASE("a disk that is gone at the next start is missed only if something was changed there",
          "[checkpoint][root]") {
    if (!can_contain()) return;
    for (const bool changes : {false, true}) {
        Server server(changes ? "echo >\"$DISK/file\"" : "ls \"$DISK\"");
        const std::string disk = server.folder + "/disk";
        server.spec.environment.push_back("DISK=" + disk);
        server.mount(server.folder + "/file-of-the-disk", disk);
        DomainHost host(server.spec);
        host.start();
        pollfd wait{host.exit_fd(), POLLIN, 0};
        REQUIRE(::poll(&wait, 1, 30000) == 1);
        REQUIRE(host.kill_all(Files::kKept));
        REQUIRE(::umount2(disk.c_str(), MNT_DETACH) == 0);
        fs::remove_all(disk);
        if (changes) {
            CHECK_THROWS_WITH(host.start(Files::kKept), Catch::Contains(disk + ", which was mounted"));
        } else {
            host.start(Files::kKept);
            host.kill_all();
        }
    }
}

TEST_CASE("a disk that goes while a container is made costs no start", "[checkpoint][root]") {
    if (!can_contain()) return;
    Server server("ls \"$DISK\" 2>/dev/null; echo end");
    const std::string disk = server.folder + "/disk";
    server.spec.environment.push_back("DISK=" + disk);
    server.mount(server.folder + "/file-of-the-disk", disk);
    // Its container is to have it by now, and is not made yet.
    std::jthread away([&] {
        const std::string config = server.spec.state_dir + "/container/config";
        const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
        while (!fs::exists(config) && std::chrono::steady_clock::now() < end) std::this_thread::yield();
        ::umount2(disk.c_str(), MNT_DETACH);
        fs::remove_all(disk);
    });
    const std::string found = server.run();
    away.join();
    CHECK(found.substr(found.size() - 4) == "end\n");
}

TEST_CASE("a server runs as the user it is to run as", "[checkpoint][root]") {
    if (!can_contain()) return;
    for (const Isolation isolation : {Isolation::kLxc, Isolation::kNone}) {
        Server server("id -u; id -g; echo $HOME $USER; grep CapEff /proc/self/status");
        server.spec.isolation = isolation;
        server.spec.user = "nobody";
        CHECK(server.run() == "65534\n65534\n/nonexistent nobody\nCapEff:\t0000000000000000\n");
        server.spec.user = "nobody-of-this-name";
        DomainHost host(server.spec);
        CHECK_THROWS_WITH(host.start(), Catch::Contains("nobody-of-this-name is not known"));
    }
}

TEST_CASE("a server with a quota meets the end of its disk, and the state directory does not",
          "[checkpoint][root]") {
    if (!can_contain()) return;
    Server server(
        "head -c 64000000 /dev/zero >/var/tmp/large 2>/dev/null || echo full; head -c 8000000 /dev/zero | tr "
        "'\\0' y");
    server.spec.disk_quota.bytes = 32 << 20;
    const std::string found = server.run();
    CHECK(found.substr(0, 5) == std::string(5, '\0'));  // its beginning is forgotten
    CHECK(found.size() == 8000005);
    struct stat info {};
    REQUIRE(::stat((server.spec.state_dir + "/stdout").c_str(), &info) == 0);
    CHECK(info.st_blocks * 512 < (8 << 20));
    for (const Mount& mount : read_mounts()) CHECK_FALSE(is_below(mount.point, server.folder));
}

TEST_CASE("a quota of XFS is one, and copies share its space", "[checkpoint][root]") {
    if (!can_contain()) return;
    Server server(
        "head -c 30000000 /dev/urandom >/var/tmp/a && cp --reflink=always /var/tmp/a /var/tmp/b && echo "
        "shared; "
        "head -c 900000000 /dev/zero >/var/tmp/large 2>/dev/null || echo full");
    server.spec.disk_quota = {400 << 20, DiskQuota::Format::kXfs};
    CHECK(server.run() == "shared\nfull\n");
    for (const Mount& mount : read_mounts()) CHECK_FALSE(is_below(mount.point, server.folder));
}

TEST_CASE("a restore with a quota of XFS begins where nothing is yet", "[checkpoint][root]") {
    Server server("true");
    server.spec.disk_quota = {400 << 20, DiskQuota::Format::kXfs};
    DomainHost host(server.spec);
    CHECK_THROWS_WITH(host.restore_packed("/nowhere/files", "/nowhere/image"),
                      Catch::Contains("unpacking /nowhere/image"));
}

TEST_CASE("without a quota, too, what a server says takes up a bounded part of the disk",
          "[checkpoint][root]") {
    if (!can_contain()) return;
    Server server("head -c 200000000 /dev/zero | tr '\\0' y");
    const std::string found = server.run();
    CHECK(found.size() == 200'000'000);
    CHECK(found.back() == 'y');
    struct stat info {};
    REQUIRE(::stat((server.spec.state_dir + "/stdout").c_str(), &info) == 0);
    CHECK(info.st_blocks * 512 <= (80 << 20));
}
