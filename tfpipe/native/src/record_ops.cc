// The ops of tfpipe.native.record_op:
//
//   TfpipeReadRecords  reads, checks and parses records
//   TfpipeHoldRecords  reads records and keeps the bytes in memory
//   TfpipeParseHeld    checks and parses held records
//   TfpipeHeldBytes    copies the bytes of held records, to see a fault
//   TfpipeReadAhead    asks the kernel to read parts of files into memory
//   TfpipeJpegSizes    reads the sides of JPEGs from their headers
//   TfpipeImageBytes   copies the first bytes of images, for TensorFlow's own ops
//
// Images and held records are variants of a tensor. The tensor is a part of the buffer
// with all records of a call, so that no op copies bytes.
//
//   variant of  as an encoded image   as a held record
//   uint8       the image's bytes     the record's bytes, checked
//   int8        never                 the record's bytes, damaged
//   string      never                 the reason why the file cannot hold the record
#include <string.h>

#include <algorithm>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "decoder.h"
#include "ops.h"
#include "pool.h"
#include "record_file.h"

namespace tfpipe {
namespace {

// The three inputs of an op: paths, and two int64 for each path. `second` is an end or
// a number of bytes.
struct Ranges {
  const tensorflow::tstring* path;
  const int64_t *begin, *second;
  int64_t count;
};

Status GetRanges(OpKernelContext* context, Ranges* ranges) {
  const Tensor &path = context->input(0), &begin = context->input(1),
               &second = context->input(2);
  if (begin.shape() != path.shape() || second.shape() != path.shape()) {
    return InvalidArgument(
        "The inputs must have one shape, got ", path.shape().DebugString(), ", ",
        begin.shape().DebugString(), " and ", second.shape().DebugString(), ".");
  }
  *ranges = {path.flat<tensorflow::tstring>().data(), begin.flat<int64_t>().data(),
             second.flat<int64_t>().data(), path.NumElements()};
  return Status();
}

// The parts of each file, by their positions in a call.
using Parts = std::vector<std::pair<std::string, std::vector<int64_t>>>;

Parts ByFile(const Ranges& ranges) {
  Parts parts;
  std::unordered_map<std::string, size_t> indices;
  for (int64_t i = 0; i < ranges.count; ++i) {
    const std::string path(ranges.path[i].data(), ranges.path[i].size());
    const auto entry = indices.emplace(path, parts.size());
    if (entry.second) parts.emplace_back(path, std::vector<int64_t>());
    parts[entry.first->second].second.push_back(i);
  }
  return parts;
}

// The shapes of the outputs of parsing ops, for each record:
//
//   encoded  the image
//   numbers  one int64 a key
//   rest     if `with_rest`, a tf.train.Example of all features but the image
Status ParsedShapes(InferenceContext* context) {
  ShapeHandle shape, numbers;
  TF_RETURN_IF_ERROR(context->Merge(context->input(0), context->input(1), &shape));
  TF_RETURN_IF_ERROR(context->Merge(shape, context->input(2), &shape));
  std::vector<std::string> keys;
  TF_RETURN_IF_ERROR(context->GetAttr("number_keys", &keys));
  const auto count = static_cast<int64_t>(keys.size());
  TF_RETURN_IF_ERROR(context->Concatenate(shape, context->Vector(count), &numbers));
  context->set_output(0, shape);
  context->set_output(1, numbers);
  context->set_output(2, shape);
  return Status();
}

REGISTER_OP("TfpipeReadRecords")
    .Input("path: string")
    .Input("byte_offset: int64")
    .Input("num_bytes: int64")
    .Output("encoded: variant")
    .Output("numbers: int64")
    .Output("rest: string")
    .Attr("image_key: string")
    .Attr("number_keys: list(string)")
    .Attr("num_optional: int >= 0 = 0")
    .Attr("with_rest: bool = false")
    .SetIsStateful()
    .SetShapeFn(ParsedShapes);

// Returns the error of a record.
Status Fault(const tensorflow::tstring& path, int64_t begin, const std::string& fault) {
  return DataLoss("The record at byte ", begin, " of ", std::string(path), ": ", fault,
                  ".");
}

// The buffer of a call: the records one after another.
class RecordBuffer {
 public:
  Status Allocate(int64_t total) {
    tensor_ = Tensor(Pool::OfRecords(), tensorflow::DT_UINT8, TensorShape({total}));
    if (total == 0 || tensor_.IsInitialized()) return Status();
    return ResourceExhausted("No memory for ", total, " bytes of records.");
  }

  // Returns room for `count` more bytes. The room is not aligned, so that only data()
  // may be used.
  Tensor Take(int64_t count) {
    const int64_t begin = at_;
    at_ += count;
    return tensor_.Slice(begin, at_);
  }

 private:
  Tensor tensor_;
  int64_t at_ = 0;
};

// Checks before any allocation that a record is within its file. Returns an empty
// string, or the fault.
std::string CheckRange(int64_t size, int64_t begin, int64_t count) {
  if (begin < 0 || count < kHeaderBytes + kFooterBytes || size < count ||
      begin > size - count) {
    return "its " + std::to_string(count) +
           " bytes must be within the file, which has " + std::to_string(size);
  }
  return "";
}

// Reads records into a buffer, file by file, and checks each record while its bytes are
// in the processor's caches. Calls use(i, record, cut, damage, error) for each record:
//
//   record      cut                                 damage                    error
//   the record  empty                               empty, or of the CRCs     0
//   no tensor   why the file cannot hold the record empty                     0
//   no tensor   empty                               empty                     errno
//
// Stops at the first error of `use`.
template <typename Use>
Status ReadEach(OpKernelContext* context, Use use) {
  Ranges ranges;
  TF_RETURN_IF_ERROR(GetRanges(context, &ranges));
  const Parts parts = ByFile(ranges);
  std::vector<std::string> cut(ranges.count);
  std::vector<int> errors(ranges.count);
  int64_t total = 0;
  for (const auto& [path, records] : parts) {
    struct stat status;
    const int error = stat(path.c_str(), &status) == 0 ? 0 : errno;
    for (const int64_t i : records) {
      errors[i] = error;
      if (error != 0) continue;
      cut[i] = CheckRange(status.st_size, ranges.begin[i], ranges.second[i]);
      if (cut[i].empty()) total += ranges.second[i];
    }
  }
  RecordBuffer buffer;
  TF_RETURN_IF_ERROR(buffer.Allocate(total));
  for (const auto& [path, records] : parts) {
    const OpenFiles::Use file = OpenFiles::Get()->Open(path);
    for (const int64_t i : records) {
      const int64_t count = ranges.second[i];
      Tensor record;
      std::string damage;
      int& error = errors[i];
      if (error == 0 && !file->is_open()) error = file->error();
      if (error == 0 && cut[i].empty()) {
        record = buffer.Take(count);
        error = file->Read(ranges.begin[i], count, BytesOf(record));
        if (error == RecordFile::kCutShort) {
          cut[i] = "it is cut short";
          error = 0;
        } else if (error == 0) {
          damage = CheckRecord(BytesOf(record), count);
        }
      }
      TF_RETURN_IF_ERROR(use(i, record, cut[i], damage, error));
    }
  }
  return Status();
}

// The attributes and outputs of both parsing ops.
class ParsingOp : public tensorflow::OpKernel {
 public:
  explicit ParsingOp(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("image_key", &keys_.image));
    OP_REQUIRES_OK(context, context->GetAttr("number_keys", &keys_.numbers));
    OP_REQUIRES_OK(context, context->GetAttr("num_optional", &keys_.num_optional));
    OP_REQUIRES_OK(context, context->GetAttr("with_rest", &with_rest_));
    const auto num_keys = static_cast<int64_t>(keys_.numbers.size());
    OP_REQUIRES(context, keys_.num_optional <= num_keys,
                InvalidArgument("num_optional must be at most the number of keys, ",
                                num_keys, ", got ", keys_.num_optional, "."));
  }

 protected:
  struct Outputs {
    Tensor *encoded, *numbers, *rest;
  };

  Status Allocate(OpKernelContext* context, Outputs* outputs) const {
    TensorShape shape = context->input(0).shape();
    TF_RETURN_IF_ERROR(context->allocate_output(0, shape, &outputs->encoded));
    TF_RETURN_IF_ERROR(context->allocate_output(2, shape, &outputs->rest));
    shape.AddDim(static_cast<int64_t>(keys_.numbers.size()));
    return context->allocate_output(1, shape, &outputs->numbers);
  }

  // Parses a checked record. Returns an empty string, or the fault.
  std::string Parse(const Tensor& record, int64_t i, const Outputs& outputs) const {
    const auto num_keys = static_cast<int64_t>(keys_.numbers.size());
    int64_t* const numbers = outputs.numbers->flat<int64_t>().data() + i * num_keys;
    const uint8_t* const bytes = BytesOf(record);
    const Span data = {bytes + kHeaderBytes,
                       bytes + record.NumElements() - kFooterBytes};
    Span image;
    std::string rest;
    std::string fault =
        ReadExample(data, keys_, &image, numbers, with_rest_ ? &rest : nullptr);
    if (!fault.empty()) return fault;
    if (with_rest_) outputs.rest->flat<tensorflow::tstring>()(i) = AsExample(rest);
    const int64_t begin = image.begin - bytes;
    outputs.encoded->flat<tensorflow::Variant>()(i) =
        record.Slice(begin, begin + static_cast<int64_t>(image.size()));
    return "";
  }

 private:
  // Returns an Example of serialized Features.
  static std::string AsExample(const std::string& features) {
    std::string example(1, static_cast<char>(kDelimited1));
    uint64_t size = features.size();
    for (; size >= 0x80; size >>= 7) example += static_cast<char>(size | 0x80);
    example += static_cast<char>(size);
    return example + features;
  }

  Keys keys_;
  bool with_rest_ = false;
};

class ReadRecordsOp : public ParsingOp {
 public:
  using ParsingOp::ParsingOp;

  void Compute(OpKernelContext* context) override {
    Outputs outputs;
    OP_REQUIRES_OK(context, Allocate(context, &outputs));
    const auto path = context->input(0).flat<tensorflow::tstring>();
    const auto begin = context->input(1).flat<int64_t>();
    OP_REQUIRES_OK(
        context,
        ReadEach(context, [&](int64_t i, const Tensor& record, const std::string& cut,
                              const std::string& damage, int error) {
          if (error != 0) return HostError(path(i), error);
          std::string fault = cut.empty() ? damage : cut;
          if (fault.empty()) fault = Parse(record, i, outputs);
          return fault.empty() ? Status() : Fault(path(i), begin(i), fault);
        }));
  }
};

REGISTER_KERNEL_BUILDER(Name("TfpipeReadRecords").Device(tensorflow::DEVICE_CPU),
                        ReadRecordsOp);

REGISTER_OP("TfpipeHoldRecords")
    .Input("path: string")
    .Input("byte_offset: int64")
    .Input("num_bytes: int64")
    .Output("held: variant")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::UnchangedShape);

// A record that is cut, damaged or in an unreadable file is no error here: the parsing
// op reports the record. The CRCs are checked here because the bytes are still in the
// processor's caches. A held tensor has a type and a shape:
//
//   uint8 [n]     the record
//   int8 [n]      a damaged record
//   string []     why the file cannot hold the record
//   string [1]    why the file cannot be read
class HoldRecordsOp : public tensorflow::OpKernel {
 public:
  explicit HoldRecordsOp(OpKernelConstruction* context) : OpKernel(context) {}

  void Compute(OpKernelContext* context) override {
    Tensor* held;
    OP_REQUIRES_OK(context,
                   context->allocate_output(0, context->input(0).shape(), &held));
    const auto path = context->input(0).flat<tensorflow::tstring>();
    auto holds = held->flat<tensorflow::Variant>();
    OP_REQUIRES_OK(
        context,
        ReadEach(context, [&](int64_t i, const Tensor& record, const std::string& cut,
                              const std::string& damage, int error) {
          Tensor kept = record;
          if (error != 0) {
            kept = Tensor(tensorflow::DT_STRING, TensorShape({1}));
            kept.flat<tensorflow::tstring>()(0) =
                std::string(HostError(path(i), error).message());
          } else if (!cut.empty()) {
            kept = Tensor(tensorflow::DT_STRING, TensorShape({}));
            kept.scalar<tensorflow::tstring>()() = cut;
          } else if (!damage.empty()) {
            kept = Tensor(tensorflow::DT_INT8, record.shape());
            memcpy(kept.data(), record.data(), record.NumElements());
          }
          holds(i) = kept;
          return Status();
        }));
  }
};

REGISTER_KERNEL_BUILDER(Name("TfpipeHoldRecords").Device(tensorflow::DEVICE_CPU),
                        HoldRecordsOp);

// Returns the error of a held record whose file could not be read.
Status HeldError(const Tensor& held, int64_t i) {
  const Tensor* record = held.flat<tensorflow::Variant>()(i).get<Tensor>();
  if (record == nullptr || record->dtype() != tensorflow::DT_STRING ||
      record->dims() != 1)
    return Status();
  return tensorflow::errors::Unavailable(
      std::string(record->flat<tensorflow::tstring>()(0)));
}

// Finds a held record. Returns an empty string, or the reason why there is no record.
std::string FindHeld(const Tensor& held, int64_t i, const Tensor** record) {
  *record = held.flat<tensorflow::Variant>()(i).get<Tensor>();
  if (*record == nullptr) return "its variant holds no tensor";
  if ((*record)->dtype() == tensorflow::DT_STRING) {
    return std::string((*record)->scalar<tensorflow::tstring>()());
  }
  const auto type = (*record)->dtype();
  const bool has_type = type == tensorflow::DT_UINT8 || type == tensorflow::DT_INT8;
  const bool has_size = (*record)->NumElements() >= kHeaderBytes + kFooterBytes;
  return has_type && has_size ? "" : "its variant holds no record";
}

REGISTER_OP("TfpipeParseHeld")
    .Input("held: variant")
    .Input("path: string")
    .Input("byte_offset: int64")
    .Output("encoded: variant")
    .Output("numbers: int64")
    .Output("rest: string")
    .Attr("image_key: string")
    .Attr("number_keys: list(string)")
    .Attr("num_optional: int >= 0 = 0")
    .Attr("with_rest: bool = false")
    .SetShapeFn(ParsedShapes);

class ParseHeldOp : public ParsingOp {
 public:
  using ParsingOp::ParsingOp;

  void Compute(OpKernelContext* context) override {
    const Tensor &held = context->input(0), &path = context->input(1),
                 &begin = context->input(2);
    OP_REQUIRES(context, path.shape() == held.shape() && begin.shape() == held.shape(),
                InvalidArgument("The inputs must have one shape."));
    Outputs outputs;
    OP_REQUIRES_OK(context, Allocate(context, &outputs));
    for (int64_t i = 0; i < held.NumElements(); ++i) {
      const Tensor* record;
      OP_REQUIRES_OK(context, HeldError(held, i));
      std::string fault = FindHeld(held, i, &record);
      if (fault.empty() && record->dtype() == tensorflow::DT_INT8)
        fault = CheckRecord(BytesOf(*record), record->NumElements());
      if (fault.empty()) fault = Parse(*record, i, outputs);
      OP_REQUIRES(
          context, fault.empty(),
          Fault(path.flat<tensorflow::tstring>()(i), begin.flat<int64_t>()(i), fault));
    }
  }
};

REGISTER_KERNEL_BUILDER(Name("TfpipeParseHeld").Device(tensorflow::DEVICE_CPU),
                        ParseHeldOp);

REGISTER_OP("TfpipeHeldBytes")
    .Input("held: variant")
    .Output("content: string")
    .SetShapeFn(tensorflow::shape_inference::UnchangedShape);

class HeldBytesOp : public tensorflow::OpKernel {
 public:
  explicit HeldBytesOp(OpKernelConstruction* context) : OpKernel(context) {}

  void Compute(OpKernelContext* context) override {
    const Tensor& held = context->input(0);
    Tensor* content;
    OP_REQUIRES_OK(context, context->allocate_output(0, held.shape(), &content));
    for (int64_t i = 0; i < held.NumElements(); ++i) {
      const Tensor* record;
      OP_REQUIRES_OK(context, HeldError(held, i));
      const std::string fault = FindHeld(held, i, &record);
      OP_REQUIRES(context, fault.empty(),
                  DataLoss("A record that is held: ", fault, "."));
      content->flat<tensorflow::tstring>()(i).assign(
          reinterpret_cast<const char*>(BytesOf(*record)),
          static_cast<size_t>(record->NumElements()));
    }
  }
};

REGISTER_KERNEL_BUILDER(Name("TfpipeHeldBytes").Device(tensorflow::DEVICE_CPU),
                        HeldBytesOp);

REGISTER_OP("TfpipeReadAhead")
    .Input("path: string")
    .Input("begin: int64")
    .Input("end: int64")
    .Output("num_bytes: int64")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::ScalarShape);

// An unreadable file is no error here: the op that reads the file reports it.
class ReadAheadOp : public tensorflow::OpKernel {
 public:
  explicit ReadAheadOp(OpKernelConstruction* context) : OpKernel(context) {}

  void Compute(OpKernelContext* context) override {
    Ranges ranges;
    OP_REQUIRES_OK(context, GetRanges(context, &ranges));
    int64_t total = 0;
    for (const auto& [path, extents] : ByFile(ranges)) {
      const OpenFiles::Use file = OpenFiles::Get()->Open(path);
      if (!file->is_open()) continue;
      const int64_t size = file->Size();
      for (const int64_t i : extents) {
        const int64_t begin = ranges.begin[i], end = std::min(ranges.second[i], size);
        if (begin < 0 || begin >= end) continue;
        file->ReadAhead(begin, end);
        total += end - begin;
      }
    }
    Tensor* num_bytes;
    OP_REQUIRES_OK(context, context->allocate_output(0, {}, &num_bytes));
    num_bytes->scalar<int64_t>()() = total;
  }
};

REGISTER_KERNEL_BUILDER(Name("TfpipeReadAhead").Device(tensorflow::DEVICE_CPU),
                        ReadAheadOp);

REGISTER_OP("TfpipeJpegSizes")
    .Input("encoded: variant")
    .Output("sizes: int32")
    .SetShapeFn([](InferenceContext* context) {
      ShapeHandle shape;
      TF_RETURN_IF_ERROR(
          context->Concatenate(context->input(0), context->Vector(2), &shape));
      context->set_output(0, shape);
      return Status();
    });

// Both sides are 0 if the image is no JPEG or has no sound header.
class JpegSizesOp : public tensorflow::OpKernel {
 public:
  explicit JpegSizesOp(OpKernelConstruction* context) : OpKernel(context) {}

  void Compute(OpKernelContext* context) override {
    const Tensor& encoded = context->input(0);
    TensorShape shape = encoded.shape();
    shape.AddDim(2);
    Tensor* sizes;
    OP_REQUIRES_OK(context, context->allocate_output(0, shape, &sizes));
    int32_t* sides = sizes->flat<int32_t>().data();
    for (int64_t i = 0; i < encoded.NumElements(); ++i, sides += 2) {
      const Span image = ImageAt(encoded, i);
      char message[kMessageLength];
      if (!ReadSides(image.begin, image.size(), sides, sides + 1, message))
        sides[0] = sides[1] = 0;
    }
  }
};

REGISTER_KERNEL_BUILDER(Name("TfpipeJpegSizes").Device(tensorflow::DEVICE_CPU),
                        JpegSizesOp);

REGISTER_OP("TfpipeImageBytes")
    .Input("encoded: variant")
    .Output("content: string")
    .Attr("most: int >= 0")
    .SetShapeFn(tensorflow::shape_inference::UnchangedShape);

// Copies up to `most` bytes of an image.
class ImageBytesOp : public tensorflow::OpKernel {
 public:
  explicit ImageBytesOp(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("most", &most_));
  }

  void Compute(OpKernelContext* context) override {
    const Tensor& encoded = context->input(0);
    Tensor* content;
    OP_REQUIRES_OK(context, context->allocate_output(0, encoded.shape(), &content));
    for (int64_t i = 0; i < encoded.NumElements(); ++i) {
      const Span image = ImageAt(encoded, i);
      content->flat<tensorflow::tstring>()(i).assign(
          reinterpret_cast<const char*>(image.begin),
          std::min(image.size(), static_cast<size_t>(most_)));
    }
  }

 private:
  int64_t most_;
};

REGISTER_KERNEL_BUILDER(Name("TfpipeImageBytes").Device(tensorflow::DEVICE_CPU),
                        ImageBytesOp);

}  // namespace
}  // namespace tfpipe
