# A message's fields as the compiled codec sets them; message.py is the whole of it, and knows their order.

cdef class Message:
    cdef object _topic
    cdef object _partition
    cdef long long _offset
    cdef long long _timestamp
    cdef object _key
    cdef object _value
    cdef object _headers
    cdef object _made
