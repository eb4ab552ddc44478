"""The cluster as it is seen: objects of Kubernetes read into facts. It decides nothing and writes nothing."""
