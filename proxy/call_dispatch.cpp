#include "proxy/call_dispatch.hpp"

#include <linux/prctl.h>
#include <sys/prctl.h>

namespace crane::proxy {

/// To be without it is what every thread begins with: nothing changes, but where the word is not known.
bool kernel_dispatches_calls() {
    return prctl(PR_SET_SYSCALL_USER_DISPATCH, PR_SYS_DISPATCH_OFF, 0, 0, 0) == 0;
}

}  // namespace crane::proxy
