"""The same thing in Kubernetes' words: dicts in, specs out, and everything that is to be said about them."""
