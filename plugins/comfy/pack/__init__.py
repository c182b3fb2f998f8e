"""The nodes (nodes_*.py) and their base: the host (host.py), the library (engine.py, model.py), tensors and files."""
