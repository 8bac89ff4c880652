#include "targets.hpp"

namespace crane::fuzz {

const std::vector<Target>& targets() {
    static const std::vector<Target> all = {
        {"message", fuzz_message}, {"frame", fuzz_frame},
        {"hello", fuzz_hello},     {"membership", fuzz_membership},
        {"record", fuzz_record},   {"identity", fuzz_identity},
        {"batch", fuzz_batch},     {"admissions", fuzz_admissions},
        {"carrier", fuzz_carrier}, {"disk", fuzz_disk},
        {"rings", fuzz_rings},     {"checkpoints", fuzz_checkpoints},
        {"letters", fuzz_letters}, {"outputs", fuzz_outputs},
        {"sides", fuzz_sides},
    };
    return all;
}

}  // namespace crane::fuzz
