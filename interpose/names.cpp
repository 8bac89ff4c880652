// Names of hosts. libc would ask the name servers by calls of its own that no wrapper sees: it is kept to the
// files (/etc/hosts), and for what they do not have the primary asks (core/egress.hpp). Without the setting
// egress libc does as ever, and finds no name server.
#include <arpa/inet.h>
#include <netdb.h>
#include <nss.h>

#include <cerrno>
#include <cstring>

#include "interpose/core/addresses.hpp"
#include "interpose/core/egress.hpp"
#include "interpose/core/operation.hpp"
#include "interpose/core/real.hpp"

namespace crane::interpose {
namespace {

using timebubble::ResolvedAddress;

/// Of several names that are asked for at once, more than there is room for.
constexpr int kTooMany = EAI_MEMORY;

bool leads_out() {
    if (!active() || !egress_allowed()) return false;
    static bool files_alone = false;  // set to the same by whoever comes first
    if (!files_alone) __nss_configure_lookup("hosts", "files");
    files_alone = true;
    return true;
}

/// What is not in the files.
bool is_unknown(int error) {
    return error == EAI_NONAME || error == EAI_NODATA || error == EAI_AGAIN || error == EAI_FAIL;
}

struct Answer {
    uint32_t count = 0;
    ResolvedAddress addresses[timebubble::kMaxResolved] = {};
};

/// 0, or an error as getaddrinfo has it.
int ask(const char* name, Answer& answer) {
    const size_t bytes = strlen(name);
    if (bytes == 0 || bytes > timebubble::kMaxNameBytes) return EAI_NONAME;
    Operation turn(Op::kResolve, own_key());
    const uint32_t question = ask_for_name(name);
    if (question == kNone) return kTooMany;
    while (!domain().egress.questions[question].answered) turn.outlast(question_key(question));
    return take_answer(question, answer.addresses, answer.count);
}

/// Appends the address to the list, in all the forms that the program asked for.
int add(const ResolvedAddress& one, const char* service, const addrinfo& asked, addrinfo**& end) {
    char text[INET6_ADDRSTRLEN];
    addrinfo hints = asked;
    hints.ai_flags |= AI_NUMERICHOST;
    hints.ai_family = one.family;
    if (!inet_ntop(one.family, one.bytes, text, sizeof(text))) return 0;
    addrinfo* here = nullptr;
    if (const int error = real.getaddrinfo(text, service, &hints, &here)) return error;
    for (*end = here; *end; end = &(*end)->ai_next) {
    }
    return 0;
}

int from_answer(const char* node, const char* service, const addrinfo& asked, bool canonical,
                const Answer& answer, addrinfo** result) {
    addrinfo *list = nullptr, **end = &list;
    int error = 0;
    for (uint32_t i = 0; i < answer.count && error == 0; ++i) {
        const ResolvedAddress& one = answer.addresses[i];
        if (asked.ai_family == AF_UNSPEC || asked.ai_family == one.family)
            error = add(one, service, asked, end);
    }
    if (error == 0 && !list) error = EAI_NODATA;
    if (error == 0 && canonical) {
        list->ai_canonname = strdup(node);
        if (!list->ai_canonname) error = EAI_MEMORY;
    }
    if (error != 0 && list) freeaddrinfo(list);
    if (error == 0) *result = list;
    return error;
}

/// As the program asked, but for what would look at the host's own addresses.
addrinfo plain_hints(const addrinfo* hints) {
    addrinfo out{};
    if (hints) out = *hints;
    out.ai_flags &= ~AI_ADDRCONFIG;
    return out;
}

/// h_errno for an error of getaddrinfo.
int as_host_error(int error) {
    if (error == EAI_AGAIN) return TRY_AGAIN;
    if (error == EAI_NODATA) return NO_DATA;
    return error == EAI_NONAME ? HOST_NOT_FOUND : NO_RECOVERY;
}

/// A hostent in the caller's buffer: the name, the addresses and the lists of pointers to them. 0 or ERANGE.
int write_host(const char* name, int family, const Answer& answer, hostent& host, char* buffer, size_t room) {
    const size_t each = family == AF_INET ? 4 : 16;
    size_t count = 0;
    for (uint32_t i = 0; i < answer.count; ++i) count += answer.addresses[i].family == family;
    const size_t skew = -reinterpret_cast<uintptr_t>(buffer) % alignof(char*);
    const size_t name_bytes = strlen(name) + 1, pointers = (count + 2) * sizeof(char*);
    if (room < skew + pointers + count * each + name_bytes) return ERANGE;
    auto** list = reinterpret_cast<char**>(buffer + skew);
    char* bytes = buffer + skew + pointers;
    list[count] = list[count + 1] = nullptr;
    for (uint32_t i = 0, at = 0; i < answer.count; ++i) {
        if (answer.addresses[i].family != family) continue;
        std::memcpy(bytes, answer.addresses[i].bytes, each);
        list[at++] = bytes;
        bytes += each;
    }
    std::memcpy(bytes, name, name_bytes);
    host = {bytes, list + count + 1, family, static_cast<int>(each), list};
    return 0;
}

int host_by_name(const char* name, int family, hostent* host, char* buffer, size_t room, hostent** result,
                 int* error) {
    if (const int rc = real.gethostbyname2_r(name, family, host, buffer, room, result, error);
        rc != 0 || *result)
        return rc;
    Answer answer;
    *result = nullptr;
    if (const int failed = ask(name, answer)) {
        *error = as_host_error(failed);
        return failed == EAI_AGAIN ? EAGAIN : 0;
    }
    bool any = false;
    for (uint32_t i = 0; i < answer.count; ++i) any = any || answer.addresses[i].family == family;
    if (!any) {
        *error = NO_DATA;
        return 0;
    }
    const int rc = write_host(name, family, answer, *host, buffer, room);
    *error = rc == 0 ? NETDB_SUCCESS : NETDB_INTERNAL;
    if (rc == 0) *result = host;
    return rc;
}

hostent* host_by_name_here(const char* name, int family) {
    static hostent host;  // as libc has it: the next call writes over it
    static char buffer[4096];
    hostent* result = nullptr;
    int error = 0;
    const int rc = host_by_name(name, family, &host, buffer, sizeof(buffer), &result, &error);
    if (rc != 0 && error == NETDB_INTERNAL) errno = rc;
    if (!result) h_errno = error;
    return result;
}

}  // namespace
}  // namespace crane::interpose

using namespace crane::interpose;

CRANE_EXPORT int getaddrinfo(const char* node, const char* service, const addrinfo* hints,
                             addrinfo** result) {
    if (!leads_out() || !node) return resolve_real(), real.getaddrinfo(node, service, hints, result);
    addrinfo asked = plain_hints(hints);
    const int known = real.getaddrinfo(node, service, &asked, result);
    if (!is_unknown(known) || (asked.ai_flags & AI_NUMERICHOST)) return known;
    Answer answer;
    if (const int error = ask(node, answer)) return error;
    const bool canonical = asked.ai_flags & AI_CANONNAME;
    asked.ai_flags &= ~(AI_CANONNAME | AI_V4MAPPED | AI_ALL);
    return from_answer(node, service, asked, canonical, answer, result);
}

CRANE_EXPORT hostent* gethostbyname(const char* name) {
    if (!leads_out()) return resolve_real(), real.gethostbyname(name);
    return host_by_name_here(name, AF_INET);
}

CRANE_EXPORT hostent* gethostbyname2(const char* name, int family) {
    if (!leads_out()) return resolve_real(), real.gethostbyname2(name, family);
    return host_by_name_here(name, family);
}

CRANE_EXPORT int gethostbyname_r(const char* name, hostent* host, char* buffer, size_t room, hostent** result,
                                 int* error) {
    if (!leads_out()) return resolve_real(), real.gethostbyname_r(name, host, buffer, room, result, error);
    return host_by_name(name, AF_INET, host, buffer, room, result, error);
}

CRANE_EXPORT int gethostbyname2_r(const char* name, int family, hostent* host, char* buffer, size_t room,
                                  hostent** result, int* error) {
    if (!leads_out())
        return resolve_real(), real.gethostbyname2_r(name, family, host, buffer, room, result, error);
    return host_by_name(name, family, host, buffer, room, result, error);
}
