#include <algorithm>
#include <catch2/catch.hpp>
#include <map>

#include "checkpoint/shown_processors.hpp"

using namespace crane;
using namespace crane::checkpoint;

namespace {

std::map<std::string, std::string> shown(uint64_t cpus) {
    std::map<std::string, std::string> files;
    for (const FileText& file : processor_files({cpus, 1 << 30})) {
        INFO(file.path);
        CHECK(files.emplace(file.path, file.text).second);
    }
    return files;
}

std::string of(const std::map<std::string, std::string>& files, const std::string& name) {
    const auto found = files.find("/sys/devices/system/cpu/" + name);
    return found == files.end() ? "" : found->second;
}

}  // namespace

TEST_CASE("processors are shown as the kernel names them", "[checkpoint]") {
    const auto one = shown(1);
    CHECK(of(one, "cpu0/topology/core_cpus") == "1\n");
    CHECK(of(one, "cpu0/topology/package_cpus_list") == "0\n");
    CHECK(of(one, "cpu0/online").empty());  // the first cannot be switched off
    CHECK(of(one, "cpu1/topology/core_id").empty());

    const auto forty = shown(40);
    CHECK(of(forty, "cpu33/topology/thread_siblings") == "02,00000000\n");
    CHECK(of(forty, "cpu33/topology/core_siblings") == "ff,ffffffff\n");
    CHECK(of(forty, "cpu33/topology/core_siblings_list") == "0-39\n");
    CHECK(of(forty, "cpu3/topology/core_cpus") == "00,00000008\n");
    CHECK(of(forty, "cpu39/online") == "1\n");
    CHECK(forty.at("/sys/devices/system/node/node0/cpumap") == "ff,ffffffff\n");
}

TEST_CASE("caches are as large as their sets", "[checkpoint]") {
    const auto two = shown(2);
    for (const char* index : {"index0", "index1", "index2", "index3"}) {
        const std::string folder = std::string("cpu1/cache/") + index + "/";
        const auto number = [&](const char* name) { return std::stol(of(two, folder + name)); };
        INFO(folder);
        CHECK(number("size") * 1024 ==
              number("number_of_sets") * number("ways_of_associativity") * number("coherency_line_size"));
    }
    CHECK(of(two, "cpu1/cache/index2/shared_cpu_list") == "1\n");
    CHECK(of(two, "cpu1/cache/index3/shared_cpu_map") == "3\n");
}
