/* conv_panel_tmpl.h - weights of a matrix product in panels of output channels. Panels are CONV_NZ vectors wide; the
 * last is one vector wide if that covers the rest. The direct convolution and Winograd share this layout. */

enum { CONV_PANEL = CONV_VW * CONV_NZ };

static inline int64_t conv_panels(int64_t channels) {
    return conv_ceil_div(channels, CONV_PANEL);
}

/* Vectors of panel i. */
static inline int64_t conv_panel_nz(int64_t channels, int64_t i) {
    return conv_min(CONV_NZ, conv_ceil_div(channels - i * CONV_PANEL, CONV_VW));
}

/* Floats of all panels, for `depth` products per output. */
static inline int64_t conv_panels_size(int64_t channels, int64_t depth) {
    return conv_ceil_div(channels, CONV_VW) * CONV_VW * depth;
}
