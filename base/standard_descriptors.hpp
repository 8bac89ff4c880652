// Who was started without standard input, output or error (`<&- >&- 2>&-`) has their numbers given to the
// first files it opens, and its next message goes into its own log. So they are /dev/null before anything
// else.
#pragma once

#include <fcntl.h>
#include <unistd.h>

namespace crane {

inline void open_missing_descriptors() {
    for (;;) {
        const int fd = open("/dev/null", O_RDWR);
        if (fd < 0) return;
        if (fd > STDERR_FILENO) {
            close(fd);
            return;
        }
    }
}

}  // namespace crane
