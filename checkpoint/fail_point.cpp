#include "checkpoint/fail_point.hpp"

#include <signal.h>
#include <unistd.h>

#include <fstream>

namespace crane::checkpoint {
namespace {

std::string armed_file;

}  // namespace

void arm_fail_points(const std::string& file) {
    armed_file = file;
}

void fail_point(const char* name) {
    if (armed_file.empty()) return;
    std::string wanted;
    if (!(std::ifstream(armed_file) >> wanted) || wanted != name) return;
    if (::unlink(armed_file.c_str()) == 0) ::kill(::getpid(), SIGKILL);  // one thread alone meets it
}

}  // namespace crane::checkpoint
