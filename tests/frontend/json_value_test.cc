#include <gtest/gtest.h>

#include <sstream>

#include "tilewright/json.h"

namespace tilewright {
namespace {

const char* const kText =
    R"({"array":[1,2.5,"three",null,true,[],{}],"big":-9007199254740993,"flag":false,"name":"x","nested":{"a":{"b":7}}})";

TEST(Json, ReadsWhatItPrints) {
  bool ok = false;
  const Json j = Json::parse(kText, &ok);
  ASSERT_TRUE(ok);
  EXPECT_EQ(j.dump(), kText);
  EXPECT_EQ(Json::parse(j.dump(2)), j);
  EXPECT_NE(j.dump(2), j.dump());
  std::ostringstream out;
  out << j;
  EXPECT_EQ(out.str(), kText);
}

TEST(Json, IsWalkedByKeyAndIndex) {
  const Json j = Json::parse(kText);
  EXPECT_TRUE(j.is_object());
  EXPECT_FALSE(j.is_array());
  EXPECT_EQ(j.size(), 5u);
  EXPECT_EQ(j.keys(), (std::vector<std::string>{"array", "big", "flag", "name", "nested"}));
  EXPECT_TRUE(j.contains("nested"));
  EXPECT_FALSE(j.contains("nothing"));
  EXPECT_EQ(j["nested"]["a"].at("b").get<int>(), 7);
  EXPECT_TRUE(j["array"].is_array());
  EXPECT_EQ(j["array"].size(), 7u);
  EXPECT_EQ(j["array"][0].get<int64_t>(), 1);
  EXPECT_EQ(j["array"][1].get<double>(), 2.5);
  EXPECT_EQ(j["array"][2].get<std::string>(), "three");
  EXPECT_TRUE(j["array"][3].is_null());
  EXPECT_TRUE(j["array"][4].get<bool>());
  EXPECT_EQ(j["big"].get<int64_t>(), -9007199254740993);
  EXPECT_FALSE(j["flag"].get<bool>());
}

TEST(Json, WhatIsNotThereIsNull) {
  const Json j = Json::parse(kText);
  EXPECT_TRUE(j["nothing"].is_null());
  EXPECT_TRUE(j["nothing"]["deeper"][3].is_null());
  EXPECT_TRUE(j["array"][99].is_null());
  EXPECT_TRUE(j["array"][-1].is_null());
  EXPECT_TRUE(j["array"]["key"].is_null());
  EXPECT_TRUE(j[0].is_null());
  EXPECT_TRUE(Json().is_null());
  EXPECT_EQ(Json().size(), 0u);
  EXPECT_TRUE(Json().keys().empty());
  EXPECT_TRUE(j["array"].keys().empty());
  EXPECT_FALSE(Json().contains("key"));
  EXPECT_EQ(Json().dump(), "null");
}

TEST(Json, AnotherTypeReadsAsNothing) {
  const Json j = Json::parse(R"({"text":"12","number":3,"flag":true,"real":1e300,"many":18446744073709551615})");
  EXPECT_EQ(j["text"].get<int>(), 0);
  EXPECT_EQ(j["text"].get<double>(), 0);
  EXPECT_FALSE(j["number"].get<bool>());
  EXPECT_EQ(j["number"].get<std::string>(), "");
  EXPECT_EQ(j["number"].get<double>(), 3);
  EXPECT_EQ(j["flag"].get<int>(), 0);
  EXPECT_EQ(j["real"].get<int64_t>(), 0);  // no integer of 64 bits
  EXPECT_EQ(j["many"].get<int64_t>(), 0);
  EXPECT_EQ(j["many"].get<int>(), 0);
  EXPECT_EQ(Json::parse("4294967297").get<int>(), 0);
  EXPECT_EQ(Json::parse("-3.0").get<int>(), -3);
  EXPECT_EQ(Json::parse("2.5").get<int>(), 0);
}

TEST(Json, RefusesWhatIsNotJson) {
  for (const char* text : {"", "{", "[1,]", "{\"a\":}", "nul", "1 2", "{'a':1}", "\"\\x\"", "\xff", "[NaN]"}) {
    bool ok = true;
    EXPECT_TRUE(Json::parse(text, &ok).is_null()) << text;
    EXPECT_FALSE(ok) << text;
  }
  EXPECT_TRUE(Json::parse("{").is_null());
  bool ok = false;
  EXPECT_TRUE(Json::parse("null", &ok).is_null());
  EXPECT_TRUE(ok);
}

// Printing and copying descend into a value, so its depth is bounded where it enters.
TEST(Json, RefusesBottomlessNesting) {
  const auto nested = [](size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  bool ok = false;
  EXPECT_EQ(Json::parse(nested(100), &ok).dump(), nested(100));
  EXPECT_TRUE(ok);
  EXPECT_TRUE(Json::parse(nested(1000000), &ok).is_null());
  EXPECT_FALSE(ok);
  const std::string brackets_in_text = "\"" + std::string(5000, '[') + "\\\"" + std::string(5000, '{') + "\"";
  Json::parse(brackets_in_text, &ok);
  EXPECT_TRUE(ok);
}

TEST(Json, IsAValue) {
  const Json j = Json::parse(kText);
  Json copy = j;
  Json moved = std::move(copy);
  EXPECT_EQ(moved, j);
  EXPECT_TRUE(copy.is_null());  // NOLINT: moved-from is null, and usable
  copy = moved;
  EXPECT_EQ(copy, j);
  moved = Json::parse("[1]");
  EXPECT_NE(moved, j);
}

}  // namespace
}  // namespace tilewright
