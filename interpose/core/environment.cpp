#include "interpose/core/environment.hpp"

#include <cstdio>
#include <cstring>

#include "interpose/core/fds.hpp"

namespace crane::interpose {

namespace {

char preload[512], transport[512];
char domain_fd[32];

void keep(char* place, size_t room, const char* name, const char* value) {
    if (!value) return;
    if (strlen(name) + strlen(value) + 2 > room)
        refuse_domain("a path in Crane's environment variables is too long");
    strcpy(place, name);
    strcat(place, "=");
    strcat(place, value);
}

bool is_own(const char* entry) {
    for (const char* name : {"LD_PRELOAD=", "CRANE_TRANSPORT=", "CRANE_DOMAIN_FD=", "CRANE_RESERVED_FD="}) {
        if (strncmp(entry, name, strlen(name)) == 0) return true;
    }
    return false;
}

}  // namespace

const char* find_variable(char* const* environment, const char* name) {
    const size_t length = strlen(name);
    for (; environment && *environment; ++environment) {
        if (strncmp(*environment, name, length) == 0 && (*environment)[length] == '=') {
            return *environment + length + 1;
        }
    }
    return nullptr;
}

void remember_environment(char** environment) {
    keep(preload, sizeof(preload), "LD_PRELOAD", find_variable(environment, "LD_PRELOAD"));
    keep(transport, sizeof(transport), "CRANE_TRANSPORT", find_variable(environment, "CRANE_TRANSPORT"));
    snprintf(domain_fd, sizeof(domain_fd), "CRANE_DOMAIN_FD=%d", reserved_fd(kDomainPlace));
}

void strip_environment(char* const* given, const char** out) {
    for (; given && *given; ++given) {
        if (!is_own(*given)) *out++ = *given;
    }
    *out = nullptr;
}

bool shim_is_readable() {
    const char* list = strchr(preload, '=');
    if (!list) return true;
    char path[sizeof(preload)];
    const size_t length = strcspn(list + 1, ": ");
    std::memcpy(path, list + 1, length);
    path[length] = 0;
    return raw(SYS_faccessat, AT_FDCWD, path, R_OK) == 0;
}

void complete_environment(char* const* given, const char** out) {
    for (; given && *given; ++given) {
        if (!is_own(*given)) *out++ = *given;
    }
    for (const char* own : {static_cast<const char*>(preload), static_cast<const char*>(transport),
                            static_cast<const char*>(domain_fd)}) {
        *out++ = own;
    }
    *out = nullptr;
}

}  // namespace crane::interpose
