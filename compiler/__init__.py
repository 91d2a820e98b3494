"""The ahead-of-time compiler: from an nn.Module to kernels and bytecode."""
