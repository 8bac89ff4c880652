// Where functions begin and end, as a loaded object says it to those who unwind (.eh_frame_hdr). Pure: reads
// the object's memory and nothing else.
#pragma once

#include <cstddef>
#include <cstdint>

namespace crane::interpose {

struct CodeRange {
    uint64_t begin = 0, end = 0;
};

class FunctionTable {
  public:
    /// `header`: .eh_frame_hdr in memory. A table in another form than linkers make is an empty one.
    explicit FunctionTable(const uint8_t* header);

    /// The function that `at` is in; or, where no function is known, the stretch between its neighbours.
    /// `whole` is what the object has of code around. False: nothing is known of the place.
    bool find(uint64_t at, CodeRange whole, CodeRange& found) const;

    size_t size() const { return count_; }
    uint64_t begin_of(size_t index) const;
    /// 0: its entry has a form that is not known.
    uint64_t end_of(size_t index) const;

  private:
    const uint8_t* header_;
    const uint8_t* rows_ = nullptr;
    size_t count_ = 0;
};

}  // namespace crane::interpose
