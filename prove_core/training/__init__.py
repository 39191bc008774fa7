"""Training of block proposers: data, block layout, gated LoRA, losses and the resumable loop."""
