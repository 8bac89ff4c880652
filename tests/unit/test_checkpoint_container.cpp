#include <catch2/catch.hpp>

#include "checkpoint/container_config.hpp"
#include "checkpoint/domain_file.hpp"
#include "checkpoint/fresh_root.hpp"
#include "checkpoint/mounts.hpp"
#include "checkpoint/run_folders.hpp"

using namespace crane::checkpoint;

TEST_CASE("a domain file carries any byte of arguments and environment", "[checkpoint]") {
    DomainFile domain;
    domain.argv = {"server", "", "two\nlines", "a=b"};
    domain.environment = {"X=1=2", "Y="};
    domain.cwd = "/srv";
    domain.contained = true;
    domain.cpu = 3;
    domain.machine = crane::ShownMachine{6, uint64_t{5} << 30};
    const std::string text = encode(domain);
    const auto back = decode_domain_file(text);
    REQUIRE(back);
    CHECK(back->argv == domain.argv);
    CHECK(back->environment == domain.environment);
    CHECK(back->contained);
    CHECK_FALSE(back->loopback_up);
    CHECK(back->cpu == 3u);
    REQUIRE(back->machine);
    CHECK(back->machine->cpus == 6);
    CHECK(back->machine->memory_bytes == uint64_t{5} << 30);
    for (size_t cut = 0; cut < text.size(); ++cut) CHECK_FALSE(decode_domain_file(text.substr(0, cut)));
}

TEST_CASE("disk-backed mounts are found, others are not", "[checkpoint]") {
    const std::string text =
        "20 1 8:1 / / rw - ext4 /dev/sda1 rw\n"
        "21 20 0:5 / /proc rw - proc proc rw\n"
        "22 20 8:2 / /usr rw shared:3 - ext4 /dev/sda2 rw\n"
        "23 20 0:6 / /var rw - tmpfs tmpfs rw\n"
        "24 20 8:3 / /tmp rw - ext4 /dev/sda3 rw\n"
        "25 20 8:4 / /etc/with\\040space rw - ext4 /dev/sda4 rw\n";
    const auto mounts = parse_mountinfo(text);
    REQUIRE(mounts.size() == 6);
    CHECK(mounts[5].point == "/etc/with space");
    const auto disks = disk_mounts_below_root(mounts);
    REQUIRE(disks.size() == 1);
    CHECK(disks[0].point == "/usr");
    CHECK(mount_of(mounts, "/usr/share/x").point == "/usr");
    CHECK(mount_of(mounts, "/usrlocal").point == "/");
}

TEST_CASE("a mount hidden by a later one does not count", "[checkpoint]") {
    const auto mounts = parse_mountinfo(
        "20 1 8:1 / / rw - ext4 /dev/sda1 rw\n21 20 8:2 / /usr rw - ext4 /dev/sda2 rw\n"
        "22 21 0:9 / /usr rw - tmpfs tmpfs rw\n");
    CHECK(disk_mounts_below_root(mounts).empty());
}

TEST_CASE("folders below /run come from tmpfiles and units", "[checkpoint]") {
    const auto folders = parse_tmpfiles(
        "# comment\nd /run/a 0750 alice adm -\nD /var/run/b - - -\nf /run/file 0644\n"
        "d /var/log/c 0755 root root\nd /run/%u 0755\n");
    REQUIRE(folders.size() == 2);
    CHECK(folders[0] == RunFolder{"/run/a", 0750, "alice", "adm"});
    CHECK(folders[1] == RunFolder{"/run/b", 0755, "root", "root"});
    const auto unit = parse_unit_runtime_folders(
        "[Service]\nUser=redis\nRuntimeDirectory=redis other\nRuntimeDirectoryMode=2755\n");
    REQUIRE(unit.size() == 2);
    CHECK(unit[0] == RunFolder{"/run/redis", 02755, "redis", "redis"});
    CHECK(parse_unit_runtime_folders("User=x\n").empty());
}

TEST_CASE("the container's configuration", "[checkpoint]") {
    ContainerPlan plan;
    plan.hostname = "crane";
    plan.layers = {{"/", "/s/u", "/s/w", "/"}, {"/usr", "/s/m/0/upper", "/s/m/0/work", "/usr"}};
    plan.binds = {{"/s/shared", "/run/crane"}};
    const std::string text = container_config(plan);
    CHECK_THAT(text, Catch::Contains("lxc.rootfs.path = overlay:/:/s/u\n"));
    CHECK_THAT(
        text, Catch::Contains("overlay usr overlay lowerdir=/usr,upperdir=/s/m/0/upper,workdir=/s/m/0/work"));
    CHECK_THAT(text, Catch::Contains("/s/shared run/crane none bind"));
    CHECK_THAT(text, Catch::Contains("lxc.net.0.type = empty"));
    CHECK_THAT(text, !Catch::Contains("apparmor"));
    plan.layers[0].lower = "/s/base";
    CHECK_THAT(container_config(plan), Catch::Contains("lxc.rootfs.path = overlay:/s/base:/s/u\n"));
    plan.apparmor = plan.host_network = true;
    CHECK_THAT(container_config(plan), Catch::Contains("lxc.apparmor.profile = unconfined"));
    CHECK_THAT(container_config(plan), Catch::Contains("lxc.net.0.type = none"));
}
