#include "npy.h"

#include <bit>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <optional>

#include "base/numeric_types.h"

namespace tilewright::tool {

namespace {

static_assert(std::endian::native == std::endian::little, "files are written in the order of this machine");

constexpr char kMagic[] = "\x93NUMPY";
constexpr size_t kMagicSize = 6;
constexpr size_t kAlign = 64;  // the data starts at a multiple of this

// A NumPy type, and the tensor type that reads its elements.
struct TypeRow {
  const char* code;  // without the byte order
  DataType_t type;
  int bytes;
};
constexpr TypeRow kTypes[] = {
    {"f2", DataType_t::HALF, 2},  {"f4", DataType_t::FLOAT, 4},   {"f8", DataType_t::DOUBLE, 8},
    {"i1", DataType_t::INT8, 1},  {"u1", DataType_t::UINT8, 1},   {"i4", DataType_t::INT32, 4},
    {"i8", DataType_t::INT64, 8}, {"b1", DataType_t::BOOLEAN, 1}, {"u2", DataType_t::BFLOAT16, 2},
};

// The text after `key` in the header's dictionary, or nothing.
std::optional<std::string> entry(const std::string& header, const char* key) {
  const size_t at = header.find(fmt::format("'{}'", key));
  if (at == std::string::npos) return std::nullopt;
  size_t begin = header.find(':', at);
  if (begin == std::string::npos) return std::nullopt;
  begin = header.find_first_not_of(" ", begin + 1);
  return begin == std::string::npos ? std::nullopt : std::optional(header.substr(begin));
}

Status bad(const std::string& what) { return invalid("not an .npy file that can be read: {}", what); }

DataType_t raw_type(DataType_t type) {  // as which bits a type that NumPy lacks travels
  switch (type) {
    case DataType_t::FP8_E4M3:
    case DataType_t::FP8_E5M2:
    case DataType_t::FP8_E8M0: return DataType_t::UINT8;
    default: return type;
  }
}

}  // namespace

Result<NpyArray> parse_npy(const std::string& bytes) {
  if (bytes.size() < kMagicSize + 4 || std::memcmp(bytes.data(), kMagic, kMagicSize) != 0)
    return bad("it does not begin with the bytes \\x93NUMPY");
  const auto byte = [&](size_t i) { return size_t(uint8_t(bytes[i])); };
  const size_t version = byte(6);
  if (version < 1 || version > 3) return bad(fmt::format("format version {}, and 1 to 3 are known", version));
  const size_t start = version == 1 ? 10 : 12;
  if (bytes.size() < start) return bad("it ends within its header");
  size_t length = byte(8) | byte(9) << 8;
  if (version > 1) length |= byte(10) << 16 | byte(11) << 24;
  if (length > bytes.size() - start)
    return bad(fmt::format("the header says {} bytes and the file ends before", length));
  const std::string header = bytes.substr(start, length);

  const auto descr = entry(header, "descr"), order = entry(header, "fortran_order"), shape = entry(header, "shape");
  if (!descr || !order || !shape) return bad(fmt::format("descr, fortran_order or shape is missing in \"{}\"", header));
  NpyArray array;
  if ((*descr)[0] != '\'' || descr->find('\'', 1) == std::string::npos)
    return bad("a structured array (descr is not one type name)");
  array.descr = descr->substr(1, descr->find('\'', 1) - 1);
  const TypeRow* row = nullptr;
  for (const TypeRow& r : kTypes)
    if (array.descr.size() == 3 && array.descr.substr(1) == r.code) row = &r;
  if (!row)
    return bad(
        fmt::format("element type \"{}\"; f2, f4, f8, i1, u1, i4, i8, b1 and u2 (raw bits) are known", array.descr));
  if (array.descr[0] == '>' && row->bytes > 1)
    return bad(
        fmt::format("\"{}\" is big-endian; save it as little-endian: a.astype(\"<{}\")", array.descr, row->code));
  array.type = row->type;

  if (order->rfind("True", 0) == 0) {
    array.fortran = true;
  } else if (order->rfind("False", 0) != 0) {
    return bad(fmt::format("fortran_order is \"{}\"", order->substr(0, 8)));
  }

  const size_t close = shape->find(')');
  if ((*shape)[0] != '(' || close == std::string::npos) return bad("shape is not a tuple");
  for (size_t i = 1; i < close;) {
    if (!std::isdigit(uint8_t((*shape)[i]))) {
      if ((*shape)[i] != ' ' && (*shape)[i] != ',')
        return bad(fmt::format("shape is \"{}\"", shape->substr(0, close + 1)));
      ++i;
      continue;
    }
    int64_t value = 0;
    for (; i < close && std::isdigit(uint8_t((*shape)[i])); ++i) {
      value = value * 10 + ((*shape)[i] - '0');
      if (value > int64_t(1) << 48) return bad("a size in its shape is absurd");
    }
    array.shape.push_back(value);
  }
  const std::optional<int64_t> count = volume_checked(array.shape);
  const size_t available = bytes.size() - start - length;
  if (!count || size_t(*count) > available / size_t(row->bytes))
    return bad(fmt::format("shape {} of {} needs more than the {} bytes of data that it has", to_text(array.shape),
                           array.descr, available));
  array.data.assign(bytes.begin() + std::ptrdiff_t(start + length),
                    bytes.begin() + std::ptrdiff_t(start + length + size_t(*count) * size_t(row->bytes)));
  return array;
}

Result<NpyArray> read_npy(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return invalid("cannot read \"{}\": {}", path, std::strerror(errno));
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  auto array = parse_npy(bytes);
  if (!array) return Status{array.status().code, fmt::format("\"{}\": {}", path, array.status().get_message())};
  return array;
}

Status npy_to_tensor(const NpyArray& array, const ir::Tensor& tensor, void* memory, std::string& note) {
  const int64_t count = volume(tensor.dim);
  if (array.shape != tensor.dim && !(array.shape.empty() && count == 1))
    return invalid("the array's shape is {}, and tensor \"{}\" has {}", to_text(array.shape), tensor.name,
                   to_text(tensor.dim));
  DataType_t from = array.type;
  const bool raw16 = array.descr.substr(1) == "u2", raw8 = array.descr.substr(1) == "u1";
  note.clear();
  if (raw16) {
    if (tensor.type != DataType_t::BFLOAT16 && tensor.type != DataType_t::HALF)
      return invalid("the array holds u2 (raw 16-bit values), and tensor \"{}\" is {}; HALF or BFLOAT16 would fit",
                     tensor.name, to_string(tensor.type));
    from = tensor.type;
    note = fmt::format("u2 taken as raw {} bits", to_string(from));
  } else if (raw8 && raw_type(tensor.type) == DataType_t::UINT8 && tensor.type != DataType_t::UINT8) {
    from = tensor.type;
    note = fmt::format("u1 taken as raw {} bits", to_string(from));
  } else if (from != tensor.type) {
    note = fmt::format("{} converted to {}", array.descr, to_string(tensor.type));
  }
  const View view = tensor.view();
  const View file{tensor.dim, array.fortran ? strides_from_order(tensor.dim,
                                                                 [&] {
                                                                   std::vector<int64_t> order(tensor.dim.size());
                                                                   for (size_t i = 0; i < order.size(); ++i)
                                                                     order[i] = int64_t(i);
                                                                   return order;
                                                                 }())
                                            : row_major_strides(tensor.dim)};
  for (int64_t i = 0; i < count; ++i)
    store_element(memory, tensor.storage_type(), offset_of_linear(i, view),
                  load_element(array.data.data(), from, offset_of_linear(i, file)));
  return {};
}

Result<std::string> tensor_to_npy(const ir::Tensor& tensor, const void* memory, std::string& note) {
  note.clear();
  const DataType_t type = raw_type(tensor.type);
  const TypeRow* row = nullptr;
  for (const TypeRow& r : kTypes)
    if (r.type == type) row = &r;
  if (!row) return invalid("tensor \"{}\": an .npy file has no type for {}", tensor.name, to_string(tensor.type));
  if (tensor.type == DataType_t::BFLOAT16)
    note = "BFLOAT16 written as u2: in NumPy, (a.astype(\"u4\") << 16).view(\"f4\")";
  else if (type != tensor.type) note = fmt::format("{} written as its raw u1 bits", to_string(tensor.type));

  std::string shape;
  for (int64_t d : tensor.dim) shape += fmt::format("{}, ", d);
  const char order = row->bytes == 1 ? '|' : '<';
  std::string header =
      fmt::format("{{'descr': '{}{}', 'fortran_order': False, 'shape': ({}), }}", order, row->code, shape);
  const size_t unpadded = kMagicSize + 4 + header.size() + 1;
  header += std::string((kAlign - unpadded % kAlign) % kAlign, ' ') + '\n';
  std::string out(kMagic, kMagicSize);
  out += {char(1), char(0), char(header.size() & 0xff), char(header.size() >> 8)};
  out += header;

  const int64_t count = volume(tensor.dim);
  const size_t data = out.size();
  out.resize(data + size_t(count) * size_t(row->bytes));
  for (int64_t i = 0; i < count; ++i) {
    const int64_t offset = offset_of_linear(i, tensor.view());
    if (tensor.bit_packed) store_element(&out[data], type, i, load_element(memory, tensor.storage_type(), offset));
    else
      std::memcpy(&out[data + size_t(i) * size_t(row->bytes)],
                  static_cast<const uint8_t*>(memory) + size_t(offset) * size_t(row->bytes), size_t(row->bytes));
  }
  return out;
}

}  // namespace tilewright::tool
