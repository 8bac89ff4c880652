#include "test_paxos_name_server.hpp"

#include <dlfcn.h>
#include <netdb.h>

#include <cstring>

namespace crane::paxos::testing {

void NameServer::ask() {
    std::unique_lock<std::mutex> guard(mutex);
    ++asked;
    changed.notify_all();
    changed.wait(guard, [this] { return answers; });
    ++answered;
    changed.notify_all();
}

void NameServer::answer() {
    std::unique_lock<std::mutex> guard(mutex);
    changed.wait(guard, [this] { return asked > 0; });
    answers = true;
    changed.notify_all();
    changed.wait(guard, [this] { return answered == asked; });
}

void NameServer::fall_silent() {
    const std::lock_guard<std::mutex> guard(mutex);
    answers = false;
    asked = answered = 0;
}

NameServer& name_server() {
    static NameServer server;
    return server;
}

}  // namespace crane::paxos::testing

// Stands before the C library's in this program.
extern "C" int getaddrinfo(const char* host, const char* service, const addrinfo* hints, addrinfo** found) {
    using namespace crane::paxos::testing;
    using Function = int(const char*, const char*, const addrinfo*, addrinfo**);
    static Function* const real = reinterpret_cast<Function*>(dlsym(RTLD_NEXT, "getaddrinfo"));
    if (host != nullptr && name_server().several_addresses && std::strcmp(host, "localhost") == 0) {
        const int first = real("127.0.0.2", service, hints, found);
        return first != 0 ? first : real("127.0.0.1", service, hints, &(*found)->ai_next);
    }
    if (host == nullptr || std::strcmp(host, kSlowName) != 0) return real(host, service, hints, found);
    name_server().ask();
    return EAI_NONAME;
}
