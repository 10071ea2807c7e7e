// The ops of tfpipe.native.record_op:
//
//   TfpipeReadRecords  reads records at known places, checks and parses them
//   TfpipeHoldRecords  reads records at known places into memory, and holds them there
//   TfpipeParseHeld    checks and parses records that are held
//   TfpipeHeldBytes    copies the bytes of records that are held, to see what is wrong
//   TfpipeReadAhead    asks the kernel to read parts of files into memory
//
// An encoded image is a variant with a uint8 tensor, a part of the buffer into which
// all records of the call were read. TfpipeCrop takes it without a copy. A record that
// is held is such a variant too; one with an int8 tensor if it is damaged; or one with
// a string, why it could not be read.
#include <string.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "decoder.h"
#include "ops.h"
#include "pool.h"
#include "record_file.h"

namespace tfpipe {
namespace {

// The three inputs: paths, and two int64 for each.
struct Places {
  const tensorflow::tstring* path;
  const int64_t *begin, *second;
  int64_t count;
};

Status GetPlaces(OpKernelContext* context, Places* places) {
  const Tensor &path = context->input(0), &begin = context->input(1),
               &second = context->input(2);
  if (begin.shape() != path.shape() || second.shape() != path.shape()) {
    return InvalidArgument(
        "The inputs must have one shape, got ", path.shape().DebugString(), ", ",
        begin.shape().DebugString(), " and ", second.shape().DebugString(), ".");
  }
  *places = {path.flat<tensorflow::tstring>().data(), begin.flat<int64_t>().data(),
             second.flat<int64_t>().data(), path.NumElements()};
  return Status();
}

// The files of a call, each looked up once.
class Files {
 public:
  const RecordFile& At(const tensorflow::tstring& path) {
    const std::string name(path.data(), path.size());
    SharedFile& file = files_[name];
    if (file == nullptr) file = OpenFiles::Get()->Find(name);
    return *file;
  }

 private:
  std::map<std::string, SharedFile> files_;
};

// The outputs of the ops that parse: an image, some numbers and, if `with_rest`, all
// features but the image, as a tf.train.Example, for each record.
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

// Says what is wrong with a record.
Status Fault(const tensorflow::tstring& path, int64_t begin, const std::string& fault) {
  return DataLoss("The record at byte ", begin, " of ", std::string(path), ": ", fault,
                  ".");
}

// The buffer of a call, with one part for each of its records.
class RecordBuffer {
 public:
  Status Allocate(int64_t total) {
    tensor_ = Tensor(Pool::OfRecords(), tensorflow::DT_UINT8, TensorShape({total}));
    if (total == 0 || tensor_.IsInitialized()) return Status();
    return ResourceExhausted("No memory for ", total, " bytes of records.");
  }

  // Returns room for that many bytes more. A part is not aligned, so that only its
  // data() may be used.
  Tensor Take(int64_t count) {
    const int64_t begin = at_;
    at_ += count;
    return tensor_.Slice(begin, at_);
  }

 private:
  Tensor tensor_;
  int64_t at_ = 0;
};

// Checks that a record is within its file, before memory is taken for it.
std::string FindPlace(const RecordFile& file, int64_t begin, int64_t count) {
  if (!file.is_open()) return std::string("it cannot be read: ") + file.error();
  const int64_t size = file.Size();
  if (begin < 0 || count < kHeaderBytes + kFooterBytes || size < count ||
      begin > size - count) {
    return "its " + std::to_string(count) +
           " bytes must be within the file, which has " + std::to_string(size);
  }
  return "";
}

// Reads records into a buffer of their own, and checks them while their bytes still are
// in the processor's caches. Calls use(i, record, unreadable, damage) after each
// record: if `unreadable` says why it could not be read, there is no tensor; `damage`
// says what its checksums found. Stops at the first error that `use` returns.
template <typename Use>
Status ReadEach(OpKernelContext* context, Use use) {
  Places places;
  TF_RETURN_IF_ERROR(GetPlaces(context, &places));
  Files files;
  std::vector<std::string> unreadable(places.count);
  int64_t total = 0;
  for (int64_t i = 0; i < places.count; ++i) {
    unreadable[i] =
        FindPlace(files.At(places.path[i]), places.begin[i], places.second[i]);
    if (unreadable[i].empty()) total += places.second[i];
  }
  RecordBuffer buffer;
  TF_RETURN_IF_ERROR(buffer.Allocate(total));
  for (int64_t i = 0; i < places.count; ++i) {
    const int64_t begin = places.begin[i], count = places.second[i];
    Tensor record;
    std::string damage;
    if (unreadable[i].empty()) {
      record = buffer.Take(count);
      unreadable[i] = files.At(places.path[i]).Read(begin, count, BytesOf(record));
    }
    if (unreadable[i].empty()) damage = CheckRecord(BytesOf(record), count);
    TF_RETURN_IF_ERROR(use(i, record, unreadable[i], damage));
  }
  return Status();
}

// What both ops that parse have in common: their outputs.
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

  // Parses a record that was checked. Returns an empty string, or what is wrong.
  std::string Parse(const Tensor& record, int64_t i, const Outputs& outputs) const {
    const auto num_keys = static_cast<int64_t>(keys_.numbers.size());
    int64_t* const numbers = outputs.numbers->flat<int64_t>().data() + i * num_keys;
    const uint8_t* const bytes = BytesOf(record);
    const Span data = {bytes + kHeaderBytes,
                       bytes + record.NumElements() - kFooterBytes};
    Span image;
    std::string rest;
    const std::string fault =
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
    OP_REQUIRES_OK(context, ReadEach(context, [&](int64_t i, const Tensor& record,
                                                  const std::string& unreadable,
                                                  const std::string& damage) {
                     std::string fault = unreadable.empty() ? damage : unreadable;
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

// A record that cannot be read or is damaged is no error here: the op that parses it
// says so. It is checked here, as its bytes still are in the processor's caches.
class HoldRecordsOp : public tensorflow::OpKernel {
 public:
  explicit HoldRecordsOp(OpKernelConstruction* context) : OpKernel(context) {}

  void Compute(OpKernelContext* context) override {
    Tensor* held;
    OP_REQUIRES_OK(context,
                   context->allocate_output(0, context->input(0).shape(), &held));
    auto holds = held->flat<tensorflow::Variant>();
    OP_REQUIRES_OK(context, ReadEach(context, [&](int64_t i, const Tensor& record,
                                                  const std::string& unreadable,
                                                  const std::string& damage) {
                     Tensor kept = record;
                     if (!unreadable.empty()) {
                       kept = Tensor(tensorflow::DT_STRING, TensorShape({}));
                       kept.scalar<tensorflow::tstring>()() = unreadable;
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

// Finds a record that is held. Returns an empty string, or why it is not there.
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

// A file that cannot be opened is no error here: the op that reads it says so.
class ReadAheadOp : public tensorflow::OpKernel {
 public:
  explicit ReadAheadOp(OpKernelConstruction* context) : OpKernel(context) {}

  void Compute(OpKernelContext* context) override {
    Places places;
    OP_REQUIRES_OK(context, GetPlaces(context, &places));
    Files files;
    int64_t total = 0;
    for (int64_t i = 0; i < places.count; ++i) {
      const RecordFile& file = files.At(places.path[i]);
      if (!file.is_open() || places.begin[i] < 0) continue;
      const int64_t end = std::min(places.second[i], file.Size());
      file.ReadAhead(places.begin[i], end);
      total += std::max<int64_t>(0, end - places.begin[i]);
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

// The sides of an image that is no JPEG, or has no sound header, are 0.
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

// All bytes of an image that has no more than `most`.
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
