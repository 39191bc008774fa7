"""Forward passes of Llama-like decoders on the CPU in compiled code of our own: `forward` uses it, `check` tries it."""
