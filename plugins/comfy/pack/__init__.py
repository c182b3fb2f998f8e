"""The nodes (nodes_*.py) and what they stand on: the host (host.py), the library (engine.py, model.py), tensors and files."""
