"""davy for Python: `abi` mirrors abi/davy.h with ctypes and finds the library. Standard library only."""
