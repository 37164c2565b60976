// Needs memory while it is compiled, as a CUTLASS kernel does: TEST_HEAVY class templates.
#pragma once
#ifndef TEST_HEAVY
#define TEST_HEAVY 0
#endif
template <int Low, int High>
struct Range {
  static constexpr int middle = Low + (High - Low) / 2;
  static constexpr int value = Range<Low, middle>::value + Range<middle, High>::value;
};
template <int Low>
struct Range<Low, Low + 1> {
  static constexpr int value = 1;
};
