# What the compiled codec takes from Python's C interface and Cython does not declare, or declares for another type.

cdef extern from "Python.h":
    object PyType_GenericAlloc(type kind, Py_ssize_t items)
    void PyObject_GC_UnTrack(void *thing)
    object PyMemoryView_FromMemory(char *memory, Py_ssize_t size, int flags)
    int PyBUF_READ
