// What is mapped into a process of the server as code, and the files it is from, for libdwfl.
//
// Rule: the files are the server's, and may be anything. No pipe or device is opened, none is mapped (one
// that is cut short would end craned), and what is read of one is bounded.
#pragma once

#include <elfutils/libdwfl.h>
#include <sys/types.h>

#include <deque>
#include <string>

namespace crane::proxy {

struct ProgramImage {
    std::string name;    ///< as /proc/PID/maps has it
    uint64_t low = 0;    ///< where it begins: the image's first byte
    uint64_t high = 0;   ///< where its last mapping ends
    bool code = false;   ///< a part can be executed
    std::string mapped;  ///< the link below /proc to the file that is mapped, whatever has its name now
    std::string root;    ///< of the process: the files' names are to be seen from there
};

/// In order. Lines of /proc/PID/maps that belong together are one: where code is patched in place there are
/// many.
std::deque<ProgramImage> images_of(pid_t thread);

/// Tells the session about those with code; they are to stay as long as it does.
void report_images(Dwfl* session, std::deque<ProgramImage>& images);

/// Finds a reported image's file; no other file is looked for.
extern const Dwfl_Callbacks kImageCallbacks;

/// The one that the kernel maps into every process, from here; nullptr: none.
Elf* kernels_image();

}  // namespace crane::proxy
