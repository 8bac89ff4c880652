#include "paxos/link/lookup.hpp"

#include <event2/event.h>
#include <netdb.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>
#include <thread>

#include "base/check.hpp"

namespace crane::paxos {

AddressInfo::AddressInfo(const PeerAddress& address, bool passive) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_NUMERICSERV | (passive ? AI_PASSIVE : 0);
    code = getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(), &hints, &list);
    if (code != 0) error = gai_strerror(code);
}

AddressInfo::~AddressInfo() {
    if (list != nullptr) freeaddrinfo(list);
}

size_t AddressInfo::count() const {
    size_t count = 0;
    for (const addrinfo* each = list; each != nullptr; each = each->ai_next) ++count;
    return count;
}

const addrinfo& AddressInfo::at(size_t index) const {
    const addrinfo* found = list;
    for (; index > 0 && found != nullptr; --index) found = found->ai_next;
    CRANE_CHECK(found != nullptr);
    return *found;
}

bool AddressInfo::repeats(size_t index) const {
    const addrinfo& one = at(index);
    for (size_t before = 0; before < index; ++before)
        if (at(before).ai_addrlen == one.ai_addrlen &&
            std::memcmp(at(before).ai_addr, one.ai_addr, one.ai_addrlen) == 0)
            return true;
    return false;
}

struct Lookup::Job {
    const PeerAddress address;
    const int done;                           // an eventfd
    std::unique_ptr<const AddressInfo> info;  // written before `done` is, read after

    explicit Job(const PeerAddress& peer) : address(peer), done(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
        if (done < 0) throw std::system_error(errno, std::generic_category(), "eventfd");
    }
    ~Job() { close(done); }
    void run() {
        info = std::make_unique<const AddressInfo>(address, false);
        const uint64_t one = 1;
        CRANE_CHECK(write(done, &one, sizeof one) == sizeof one);
    }
};

Lookup::Lookup(event_base* base, const PeerAddress& address, Handler on_found)
    : job_(std::make_shared<Job>(address)),
      done_(event_new(base, job_->done, EV_READ, on_done, this)),
      on_found_(std::move(on_found)) {
    CRANE_CHECK(done_ != nullptr);
    event_add(done_, nullptr);
    try {
        std::thread([job = job_] { job->run(); }).detach();
    } catch (...) {
        event_free(done_);
        throw;
    }
}

Lookup::~Lookup() {
    event_free(done_);
}

void Lookup::on_done(int, short, void* self) {
    Lookup& lookup = *static_cast<Lookup*>(self);
    uint64_t count = 0;
    if (read(lookup.job_->done, &count, sizeof count) != sizeof count) return;
    lookup.on_found_(*lookup.job_->info);
}

}  // namespace crane::paxos
