// What /sys says of the processors that a server is shown: cores of one package, each with caches of a usual
// size of its own and the last one shared. Programs find out by it where to put their threads, and take a
// machine for broken that says nothing.
#pragma once

#include <string>
#include <vector>

#include "base/shown_machine.hpp"

namespace crane::checkpoint {

/// A file with its whole text.
struct FileText {
    std::string path, text;
};

std::vector<FileText> processor_files(const ShownMachine& machine);

}  // namespace crane::checkpoint
