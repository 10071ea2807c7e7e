// The file of a split with a table of entry points for each record. The Python module
// tfpipe.native.entry_file writes and describes the file.
//
//   bytes              content; the lowest byte of a number comes first
//   8                  "tfpentry"
//   8                  number of records
//   8 * (records + 1)  offsets, after these numbers, of the tables and of their end
//   all others         the tables
//
// The file is read and not mapped: a mapped file that is cut off kills the process.
#ifndef TFPIPE_NATIVE_ENTRY_FILE_H_
#define TFPIPE_NATIVE_ENTRY_FILE_H_

#include "entry_points.h"
#include "record_file.h"

namespace tfpipe {

class EntryFile {
 public:
  // The bytes of a table in the file; `size` is 0 if there is no table.
  struct Range {
    uint64_t begin, size;
  };

  // Reads the head. Without a sound head no record has a table.
  explicit EntryFile(const OpenFiles::Use& file) : file_(file) {
    uint8_t head[kHead];
    error_ = file_->is_open() ? file_->Read(0, sizeof(head), head) : file_->error();
    has_head_ = error_ == 0 && memcmp(head, "tfpentry", 8) == 0;
    if (has_head_) num_records_ = LowFirst(head + 8, 8);
    has_head_ = has_head_ && num_records_ < (uint64_t{1} << 48);
    if (!has_head_) num_records_ = 0;
  }

  bool has_head() const { return has_head_; }

  // The errno of opening the file or of reading its head. 0 if the file is too short.
  int error() const { return std::max(error_, 0); }

  Range Find(int64_t record) const {
    uint8_t offsets[16];
    const auto index = static_cast<uint64_t>(record);
    if (record < 0 || index >= num_records_) return {0, 0};
    if (!ReadAll(kHead + 8 * index, sizeof(offsets), offsets)) return {0, 0};
    const uint64_t begin = LowFirst(offsets, 8), end = LowFirst(offsets + 8, 8);
    if (begin > end || end - begin > kMostBytes || end >> 62) return {0, 0};
    return {kHead + 8 * (num_records_ + 1) + begin, end - begin};
  }

  // Returns whether the file has the bytes.
  bool Read(const Range& range, char* table) const {
    return ReadAll(range.begin, range.size, reinterpret_cast<uint8_t*>(table));
  }

 private:
  static constexpr uint64_t kHead = 16, kMostBytes = 1 << 26;

  bool ReadAll(uint64_t at, uint64_t size, uint8_t* to) const {
    return file_->Read(static_cast<int64_t>(at), static_cast<int64_t>(size), to) == 0;
  }

  const OpenFiles::Use& file_;
  int error_ = 0;
  bool has_head_ = false;
  uint64_t num_records_ = 0;
};

}  // namespace tfpipe

#endif
