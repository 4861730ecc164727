"""What several tests build: small networks as ONNX files, and properties as text."""
