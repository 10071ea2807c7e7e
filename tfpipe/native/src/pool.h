// Memory for batches: the buffer of a freed batch is used again for a later batch.
//
// malloc would return the buffer of a batch of floats to the kernel. The kernel would
// then find and clear new pages for the next batch, at a third of the cost of decoding.
#ifndef TFPIPE_NATIVE_POOL_H_
#define TFPIPE_NATIVE_POOL_H_

#include <stdlib.h>
#include <sys/mman.h>

#include <algorithm>
#include <deque>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>

#include "tensorflow/core/framework/allocator.h"

namespace tfpipe {

class Pool : public tensorflow::Allocator {
 public:
  // For batches of images: few sizes. The pool is never destroyed, because batches may
  // outlive the last op.
  static Pool* OfImages() {
    static Pool* pool = new Pool("tfpipe_images", 0);
    return pool;
  }

  // For the records of batches: any size, in huge pages, with room to grow.
  static Pool* OfRecords() {
    static Pool* pool = new Pool("tfpipe_records", size_t{1} << 21);
    return pool;
  }

  std::string Name() override { return name_; }

  void* AllocateRaw(size_t alignment, size_t num_bytes) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (auto block = free_.begin(); block != free_.end(); ++block) {
      if (!Fits(sizes_[*block], num_bytes)) continue;
      void* buffer = *block;
      free_.erase(block);
      return buffer;
    }
    size_t size = num_bytes;
    // An eighth more, because the next batch may be a little larger.
    if (page_ > 0) size = (num_bytes + num_bytes / 8 + page_) / page_ * page_;
    void* buffer = nullptr;
    if (posix_memalign(&buffer, std::max(alignment, page_), size) != 0) return nullptr;
    if (page_ > 0) madvise(buffer, size, MADV_HUGEPAGE);
    sizes_[buffer] = size;
    return buffer;
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
  static constexpr size_t kMostTimes =
      4;  // a buffer is at most so much larger than needed

  Pool(std::string name, size_t page) : name_(std::move(name)), page_(page) {}

  bool Fits(size_t size, size_t num_bytes) const {
    if (page_ == 0) return size == num_bytes;
    return size >= num_bytes && size / kMostTimes <= std::max(num_bytes, page_);
  }

  const std::string name_;
  const size_t page_;  // bytes; 0 for buffers of exactly the size needed
  std::mutex mutex_;
  std::deque<void*> free_;  // the oldest first
  std::unordered_map<void*, size_t> sizes_;
};

}  // namespace tfpipe

#endif
