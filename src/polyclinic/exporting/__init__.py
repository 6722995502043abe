"""Trained models out of run folders: graphs, packages, bundles; needs torch, onnx, onnxscript."""
