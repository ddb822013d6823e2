# What the compiled codec takes from Python's C interface and Cython does not declare, or declares for another type.

cdef extern from "Python.h":
    object PyType_GenericAlloc(type kind, Py_ssize_t items)
    void PyObject_GC_UnTrack(void *thing)
    object PyMemoryView_FromMemory(char *memory, Py_ssize_t size, int flags)
    int PyBUF_READ
    bytearray PyByteArray_FromStringAndSize(const char *data, Py_ssize_t size)
    int PyGC_Disable()
    int PyGC_Enable()

# Where the bytes of a buffer lie: they stay there for as long as the caller has it. BufferError if they are not together,
# or may not be written to where that is wanted.
cdef extern from *:
    """
    static inline unsigned char *bytes_of(PyObject *buffer, int flags) {
        Py_buffer view;
        if (PyObject_GetBuffer(buffer, &view, flags) < 0)
            return NULL;
        unsigned char *data = (unsigned char *) view.buf;
        PyBuffer_Release(&view);
        return data;
    }
    """
    unsigned char *bytes_of(object buffer, int flags) except NULL

# CRC-32C of a few bytes, where the processor has an instruction for it: calling the crc32c package, which is faster on
# many, takes longer than a small batch does otherwise.
cdef extern from *:
    """
    #if defined(__x86_64__) && defined(__GNUC__)
    __attribute__((target("sse4.2")))
    static unsigned int short_crc32c(const unsigned char *data, Py_ssize_t size) {
        unsigned long long crc = 0xFFFFFFFF, word;
        for (; size >= 8; data += 8, size -= 8) {
            memcpy(&word, data, 8);
            crc = __builtin_ia32_crc32di(crc, word);
        }
        if (size >= 4) {
            unsigned int half;
            memcpy(&half, data, 4);
            crc = __builtin_ia32_crc32si((unsigned int) crc, half);
            data += 4;
            size -= 4;
        }
        for (; size > 0; data++, size--)
            crc = __builtin_ia32_crc32qi((unsigned int) crc, *data);
        return ~(unsigned int) crc;
    }
    static int has_short_crc32c(void) { return __builtin_cpu_supports("sse4.2") != 0; }
    #else
    static unsigned int short_crc32c(const unsigned char *data, Py_ssize_t size) { return 0; }
    static int has_short_crc32c(void) { return 0; }
    #endif
    """
    unsigned int short_crc32c(const unsigned char *data, Py_ssize_t size)
    int has_short_crc32c()

# Show an object that lies `place` bytes behind the beginning of a type's instances as a slot, in place of the property of
# that name: the interpreter has an instruction for slots. 0, or -1 with an exception.
cdef extern from *:
    """
    #include <structmember.h>
    static int show_field(PyTypeObject *type, const char *name, Py_ssize_t place) {
        PyObject *old = PyDict_GetItemString(type->tp_dict, name);
        PyMemberDef *field = PyMem_Calloc(1, sizeof(PyMemberDef));
        if (old == NULL || field == NULL) {
            PyMem_Free(field);
            PyErr_SetString(PyExc_SystemError, "a field cannot be shown");
            return -1;
        }
        field->name = name;
        field->type = T_OBJECT_EX;
        field->offset = place;
        field->flags = READONLY;
        field->doc = Py_TYPE(old) == &PyGetSetDescr_Type ? ((PyGetSetDescrObject *) old)->d_getset->doc : NULL;
        PyObject *made = PyDescr_NewMember(type, field);
        int failed = made == NULL || PyDict_SetItemString(type->tp_dict, name, made) < 0;
        Py_XDECREF(made);
        PyType_Modified(type);
        return failed ? -1 : 0;
    }
    """
    int show_field(type kind, const char *name, Py_ssize_t place) except -1
