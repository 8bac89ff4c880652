// Text scripts of the protocol: commands, each block followed by the transcript it is expected to give.
// The format is described in paxos_scripts/README.md.
#pragma once

#include <string>

namespace crane::paxos::script {

struct Outcome {
    std::string text;     ///< the script with the transcripts of this run
    std::string problem;  ///< a command that makes no sense, or a broken promise; the script ends there
};

/// Runs the commands of a script. What it expected is not looked at: compare `text` with `script`.
Outcome run(const std::string& script);

/// What differs, line by line, with a few lines around it. Empty when nothing does.
std::string difference(const std::string& expected, const std::string& actual);

}  // namespace crane::paxos::script
