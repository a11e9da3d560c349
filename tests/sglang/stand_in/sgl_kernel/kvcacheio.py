"""`sgl_kernel.kvcacheio`: SGLang imports the module; nothing in it is used on CPU."""
