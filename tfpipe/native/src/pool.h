// Memory for batches: the buffer of a freed batch is kept and used for a later batch.
//
// malloc returns a buffer as large as a batch of floats to the kernel when it is freed.
// The kernel would then find and clear new pages for each batch, at a third of the cost
// of decoding.
#ifndef TFPIPE_NATIVE_POOL_H_
#define TFPIPE_NATIVE_POOL_H_

#include <stdlib.h>

#include <deque>
#include <mutex>
#include <string>
#include <unordered_map>

#include "tensorflow/core/framework/allocator.h"

namespace tfpipe {

class Pool : public tensorflow::Allocator {
 public:
  // Never destroyed: batches may outlive the last op.
  static Pool* Get() {
    static Pool* pool = new Pool;
    return pool;
  }

  std::string Name() override { return "tfpipe"; }

  void* AllocateRaw(size_t alignment, size_t num_bytes) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (auto block = free_.begin(); block != free_.end(); ++block) {
      if (sizes_[*block] != num_bytes) continue;
      void* found = *block;
      free_.erase(block);
      return found;
    }
    void* made = nullptr;
    if (posix_memalign(&made, alignment, num_bytes) != 0) return nullptr;
    sizes_[made] = num_bytes;
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

  std::mutex mutex_;
  std::deque<void*> free_;  // the oldest first
  std::unordered_map<void*, size_t> sizes_;
};

}  // namespace tfpipe

#endif
