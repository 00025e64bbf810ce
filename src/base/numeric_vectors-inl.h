// Half and bfloat16 to vectors of float and back. Included once per target, inside a namespace where hn is Highway's.

template <class T, class D>
using NarrowOf = hn::Rebind<T, D>;

// d: of float. bits: as many 16-bit codes.
template <class D, class V>
HWY_INLINE hn::Vec<D> float_of_half(D d, V bits) {
  return hn::PromoteTo(d, hn::BitCast(NarrowOf<hwy::float16_t, D>(), bits));
}
template <class D, class V>
HWY_INLINE hn::Vec<D> float_of_bfloat16(D d, V bits) {
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(hn::RebindToUnsigned<D>(), bits)));
}
template <class D>
HWY_INLINE auto half_of_float(D, hn::Vec<D> v) {
  return hn::BitCast(NarrowOf<uint16_t, D>(), hn::DemoteTo(NarrowOf<hwy::float16_t, D>(), v));
}
// The upper half, plus the carry of the lower one.
template <class D>
HWY_INLINE auto bfloat16_of_float(D d, hn::Vec<D> v) {
  (void)d;
  const hn::RebindToUnsigned<D> du;
  const auto bits = hn::BitCast(du, v), upper = hn::ShiftRight<16>(bits);
  const auto odd = hn::And(upper, hn::Set(du, 1u));
  const auto rounded = hn::ShiftRight<16>(hn::Add(hn::Add(bits, hn::Set(du, 0x7fffu)), odd));
  const auto quiet = hn::Or(upper, hn::Set(du, 0x40u));
  const auto code = hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(v)), quiet, rounded);
  return hn::DemoteTo(NarrowOf<uint16_t, D>(), hn::BitCast(hn::RebindToSigned<D>(), code));
}
