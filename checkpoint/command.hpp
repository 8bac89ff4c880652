// Programs of the system that do a piece of work for this one: started, waited for, and quoted when they
// fail.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace crane::checkpoint {

/// Is asked beforehand and many times a second while a program works; what it throws ends the program.
using Check = std::function<void()>;

enum class Pace {
    kWaitedFor,
    kInBackground,  ///< others come first, but it gets on where they take all: a restart may have to wait for
                    ///< it
};

/// Runs `words` (the first is a path) and waits for its end; it ends with the calling thread. Throws
/// std::runtime_error with `doing`, and what the program said, unless it exits with a status up to
/// `most_status`.
void run_command(const std::vector<std::string>& words, const std::string& doing, int most_status = 0,
                 const Check& check = {}, Pace pace = Pace::kWaitedFor);
/// What it says on standard output and error, up to 1 MiB of it; throws as run_command() does.
std::string output_of(const std::vector<std::string>& words, const std::string& doing);

}  // namespace crane::checkpoint
