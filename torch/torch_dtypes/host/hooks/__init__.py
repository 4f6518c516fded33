"""What a stock wheel makes necessary: every module that puts code of ours into PyTorch's Python, or
behind its builtins.

Inside PyTorch's own tree none of this would be needed. ``hooks`` installs it all, once a process.
"""
