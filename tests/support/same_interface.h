// Whether a function declared by us may be called for one declared by somebody else: the same result and arguments,
// where an enum of theirs may be an integer or an enum of ours.
#pragma once

#include <type_traits>

namespace tilewright {

template <class A, class B>
constexpr bool same_value() {
  if constexpr (std::is_same_v<A, B>) return true;
  else if constexpr (std::is_pointer_v<A> && std::is_pointer_v<B>) {
    using X = std::remove_pointer_t<A>;
    using Y = std::remove_pointer_t<B>;
    return std::is_const_v<X> == std::is_const_v<Y> && same_value<std::remove_const_t<X>, std::remove_const_t<Y>>();
  } else {
    constexpr bool numbers = (std::is_enum_v<A> || std::is_integral_v<A>)&&(std::is_enum_v<B> || std::is_integral_v<B>);
    if constexpr (numbers) return (std::is_enum_v<A> || std::is_enum_v<B>)&&sizeof(A) == sizeof(B);
    else return false;
  }
}

template <class Ours, class Theirs>
struct SameFunction : std::false_type {};
template <class R, class... A, class S, class... B>
struct SameFunction<R (*)(A...), S (*)(B...)> {
  static constexpr bool arguments() {
    if constexpr (sizeof...(A) == sizeof...(B)) return (same_value<A, B>() && ...);
    else return false;
  }
  static constexpr bool value = same_value<R, S>() && arguments();
};

enum class SomeEnum : int {};
static_assert(SameFunction<int (*)(int*), SomeEnum (*)(SomeEnum*)>::value);
static_assert(!SameFunction<int (*)(int*), SomeEnum (*)(SomeEnum**)>::value);
static_assert(!SameFunction<int (*)(const int*), int (*)(int*)>::value);
static_assert(!SameFunction<int (*)(int), int (*)(long)>::value);
static_assert(!SameFunction<int (*)(int), int (*)(int, int)>::value);
static_assert(!SameFunction<int (*)(int), int (*)(unsigned)>::value);

}  // namespace tilewright
