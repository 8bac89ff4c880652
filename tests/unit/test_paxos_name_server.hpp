// A name server that answers when the test lets it: in this program getaddrinfo() is
// test_paxos_name_server.cpp's.
#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>

namespace crane::paxos::testing {

constexpr const char* kSlowName = "slow.invalid";  ///< does not exist, which is told when answer() is called

struct NameServer {
    std::mutex mutex;
    std::condition_variable changed;
    bool answers = false;
    unsigned asked = 0, answered = 0;
    std::atomic<bool> several_addresses = false;  ///< localhost is 127.0.0.2, and 127.0.0.1

    void ask();
    void answer();  ///< waits for the question, and until it is answered
    void fall_silent();
};

NameServer& name_server();

}  // namespace crane::paxos::testing
