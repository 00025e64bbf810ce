#include "base/hash.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace tilewright {
namespace {

TEST(Hash, IsXxh3) {
  // Published test values: the empty input, with and without a seed.
  EXPECT_EQ(hash_bytes(nullptr, 0), 0x2D06800538D394C2u);
  EXPECT_EQ(hash_text(""), 0x2D06800538D394C2u);
}

TEST(Hash, DependsOnEveryByteTheLengthAndTheSeed) {
  std::set<uint64_t> seen;
  for (size_t length : {1, 3, 8, 16, 17, 128, 129, 240, 241, 1025}) {
    std::string text(length, 'x');
    seen.insert(hash_text(text));
    seen.insert(hash_text(text, 1));
    for (char& c : text) {
      c = 'y';
      seen.insert(hash_text(text));
      c = 'x';
    }
  }
  EXPECT_EQ(seen.size(), size_t(2 * 10 + 1 + 3 + 8 + 16 + 17 + 128 + 129 + 240 + 241 + 1025));
}

}  // namespace
}  // namespace tilewright
