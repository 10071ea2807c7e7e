// Memory for the records of a batch: buffers of freed batches are used again.
//
// The kernel would otherwise find and clear new pages for each batch. Unlike the batches
// of pool.h, those of records have different sizes.
#ifndef TFPIPE_NATIVE_RECORD_POOL_H_
#define TFPIPE_NATIVE_RECORD_POOL_H_

#include <stdlib.h>
#include <sys/mman.h>

#include <algorithm>
#include <deque>
#include <mutex>
#include <string>
#include <unordered_map>

#include "tensorflow/core/framework/allocator.h"

namespace tfpipe {

class RecordPool : public tensorflow::Allocator {
 public:
  // Never destroyed: records may outlive the last op.
  static RecordPool* Get() {
    static RecordPool* pool = new RecordPool;
    return pool;
  }

  std::string Name() override { return "tfpipe_records"; }

  void* AllocateRaw(size_t alignment, size_t num_bytes) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (auto block = free_.begin(); block != free_.end(); ++block) {
      const size_t size = sizes_[*block];
      if (size < num_bytes || size / kMostTimes > std::max(num_bytes, kPage)) continue;
      void* found = *block;
      free_.erase(block);
      return found;
    }
    // An eighth more, as the next batch may be a little larger.
    const size_t size = (num_bytes + num_bytes / 8 + kPage) / kPage * kPage;
    void* made = nullptr;
    if (posix_memalign(&made, std::max(alignment, kPage), size) != 0) return nullptr;
    madvise(made, size, MADV_HUGEPAGE);
    sizes_[made] = size;
    return made;
  }

  void DeallocateRaw(void* block) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    free_.push_back(block);
    if (free_.size() <= kMaxFree) return;
    sizes_.erase(free_.front());
    free(free_.front());
    free_.pop_front();
  }

 private:
  static constexpr size_t kMaxFree = 4;  // batches; calls take and return them in turns
  static constexpr size_t kMostTimes = 4;  // a buffer may be so much larger than needed
  static constexpr size_t kPage = size_t{1} << 21;  // a huge page

  std::mutex mutex_;
  std::deque<void*> free_;  // the oldest first
  std::unordered_map<void*, size_t> sizes_;
};

}  // namespace tfpipe

#endif
