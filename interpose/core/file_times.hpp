// Times of files that the domain changes, from the virtual clock.
#pragma once

namespace crane::interpose {

/// The file behind `fd` is being written: its time will be set before anyone can see it. Cheap when noted
/// already.
void note_file_write(int fd);

}  // namespace crane::interpose
