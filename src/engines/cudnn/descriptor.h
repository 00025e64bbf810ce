// A backend descriptor: created, given attributes, finalized. The first call that fails is kept and later ones do
// nothing, so that a caller sets everything and asks once, at finalize().
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "engines/cudnn/loader.h"

namespace tilewright::cudnn {

// "BAD_PARAM: stride[1] of tensor 3 is 0": what cuDNN says of the calling thread's last failed call, in one line.
std::string failure_text(StatusCode);
// The pages of cudnnGetLastErrorString in one line: the innermost condition that did not hold.
std::string condense(const std::string& pages);

class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(Kind);
  ~Descriptor() { reset(); }
  Descriptor(Descriptor&& from) noexcept { *this = std::move(from); }
  Descriptor& operator=(Descriptor&& from) noexcept;

  Descriptor& integer(Attr, int64_t);
  Descriptor& integers(Attr, const std::vector<int64_t>&);
  Descriptor& int32(Attr, int32_t);
  Descriptor& real(Attr, float);
  Descriptor& real(Attr, double);
  Descriptor& boolean(Attr, bool);
  Descriptor& type(Attr, DataType_t);
  // An enum of the interface: `number` is its value, `kind` which enum it is.
  Descriptor& value(Attr, AttrType kind, int number);
  Descriptor& handle(Attr, Handle);
  // Descriptors that are finalized already and outlive this one.
  Descriptor& descriptor(Attr, RawDescriptor);
  Descriptor& descriptors(Attr, const std::vector<RawDescriptor>&);
  Descriptor& pointer(Attr, const void*);
  Descriptor& pointers(Attr, void* const*, int64_t count);
  Descriptor& text(Attr, const std::string&);
  Descriptor& set(Attr, AttrType, int64_t count, const void* elements);
  Status finalize();

  // "cuDNN OPERATION_MATMUL: attribute OPERATION_MATMUL_ADESC: BAD_PARAM: ..."
  const Status& status() const { return status_; }
  RawDescriptor raw() const { return raw_; }

  Result<int64_t> get_integer(Attr) const;
  Result<std::vector<int>> get_values(Attr, AttrType, int64_t most) const;
  Result<std::string> get_text(Attr) const;
  // Up to `most` descriptors of `kind`, filled by cuDNN.
  Result<std::vector<Descriptor>> get_descriptors(Attr, Kind, int64_t most) const;
  Result<int64_t> count(Attr, AttrType) const;

 private:
  void reset();
  Status failure(const char* what, const char* name, StatusCode) const;

  Kind kind_ = Kind::TENSOR;
  RawDescriptor raw_ = nullptr;
  Status status_;
};

}  // namespace tilewright::cudnn
