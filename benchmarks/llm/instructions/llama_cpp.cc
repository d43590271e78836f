/* llama.cpp's products with one row of activations, called as our kernels are: tensors of weights, activations,
   rounded activations and results (dlpack.h, tvm/ffi/c_api.h). Rounding the activations is part of each. */
#include <cstddef>
#include <cstdint>

#ifdef __riscv
#define GEMV_4 ggml_gemv_q4_0_16x1_q8_0
#define GEMV_8 ggml_gemv_q8_0_16x1_q8_0
#else
#define GEMV_4 ggml_gemv_q4_0_4x4_q8_0
#define GEMV_8 ggml_gemv_q8_0_4x4_q8_0
#endif

extern "C" {
void GEMV_4(int, float *, size_t, const void *, const void *, int, int);
void GEMV_8(int, float *, size_t, const void *, const void *, int, int);
void ggml_vec_dot_q4_0_q8_0(int, float *, size_t, const void *, size_t, const void *, size_t, int);
void ggml_vec_dot_q8_0_q8_0(int, float *, size_t, const void *, size_t, const void *, size_t, int);
void quantize_row_q8_0(const float *, void *, int64_t);

struct Tensor {
  char *data;
  int32_t device, number, rank;
  uint8_t code, bits;
  uint16_t lanes;
  int64_t *shape;
};
struct Argument {
  int32_t kind, unused;
  Tensor *tensor;
};

static float *rounded(Argument *a, int *rows, int *columns) {
  *rows = (int)a[3].tensor->shape[0];
  *columns = (int)a[1].tensor->shape[0];
  quantize_row_q8_0((const float *)a[1].tensor->data, a[2].tensor->data, *columns);
  return (float *)a[3].tensor->data;
}

#define REPACKED(BITS)                                                                \
  int __tvm_ffi_repacked_##BITS(void *, Argument *a, int, void *) {                   \
    int rows, columns;                                                                \
    float *out = rounded(a, &rows, &columns);                                         \
    GEMV_##BITS(columns, out, rows, a[0].tensor->data, a[2].tensor->data, 1, rows);   \
    return 0;                                                                         \
  }
#define ROWS(BITS, DOT)                                                               \
  int __tvm_ffi_rows_##BITS(void *, Argument *a, int, void *) {                       \
    int rows, columns;                                                                \
    float *out = rounded(a, &rows, &columns);                                         \
    for (int row = 0; row < rows; ++row) {                                            \
      const char *weights = a[0].tensor->data + (size_t)row * (columns / 32 * (4 * BITS + 2)); \
      DOT(columns, out + row, 0, weights, 0, a[2].tensor->data, 0, 1);                \
    }                                                                                 \
    return 0;                                                                         \
  }
REPACKED(4)
REPACKED(8)
ROWS(4, ggml_vec_dot_q4_0_q8_0)
ROWS(8, ggml_vec_dot_q8_0_q8_0)
}
