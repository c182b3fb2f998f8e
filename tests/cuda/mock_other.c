/* mock_other.c - a shared library that is no driver. */
__attribute__((visibility("default"))) int mock_other(void);

int mock_other(void) {
    return 1;
}
