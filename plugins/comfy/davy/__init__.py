"""davy for Python: `abi` mirrors abi/davy.h with ctypes and finds the library. It needs only the standard library."""
