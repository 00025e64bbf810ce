#include "engines/cudnn/numbers.h"

namespace tilewright::cudnn {

#define TW_TEXT(NAME, VALUE) \
  case VALUE: return #NAME;
const char* to_text(Kind kind) {
  switch (int(kind)) { TW_CUDNN_DESCRIPTORS(TW_TEXT) }
  return "?";
}
const char* to_text(Attr attribute) {
  switch (int(attribute)) { TW_CUDNN_ATTRIBUTES(TW_TEXT) }
  return "?";
}

#define TW_NUMBER(NAME, VALUE) \
  case E::NAME: \
    return VALUE;
#define TW_NUMBERS(TYPE, LIST) \
  int number(TYPE value) { \
    using E = TYPE; \
    switch (value) { LIST(TW_NUMBER) default : return -1; } \
  }
TW_NUMBERS(DataType_t, TW_CUDNN_DATA_TYPES)
TW_NUMBERS(PointwiseMode_t, TW_CUDNN_POINTWISE_MODES)
TW_NUMBERS(ReductionMode_t, TW_CUDNN_REDUCTION_MODES)
TW_NUMBERS(ResampleMode_t, TW_CUDNN_RESAMPLE_MODES)
TW_NUMBERS(PaddingMode_t, TW_CUDNN_PADDING_MODES)
TW_NUMBERS(ConvolutionMode_t, TW_CUDNN_CONVOLUTION_MODES)
TW_NUMBERS(NormMode_t, TW_CUDNN_NORM_MODES)
TW_NUMBERS(NormFwdPhase_t, TW_CUDNN_NORM_PHASES)
TW_NUMBERS(RngDistribution_t, TW_CUDNN_RNG_DISTRIBUTIONS)
TW_NUMBERS(TensorReordering_t, TW_CUDNN_REORDERINGS)
TW_NUMBERS(KnobType_t, TW_CUDNN_KNOB_TYPES)

#define TW_VALUE(NAME, VALUE) \
  case VALUE: \
    return E::NAME;
#define TW_VALUES(FUNCTION, TYPE, LIST) \
  TYPE FUNCTION(int number) { \
    using E = TYPE; \
    switch (number) { LIST(TW_VALUE) default : return E::NOT_SET; } \
  }
TW_VALUES(behavior_note, BehaviorNote_t, TW_CUDNN_BEHAVIOR_NOTES)
TW_VALUES(numerical_note, NumericalNote_t, TW_CUDNN_NUMERICAL_NOTES)
TW_VALUES(knob_type, KnobType_t, TW_CUDNN_KNOB_TYPES)

}  // namespace tilewright::cudnn
