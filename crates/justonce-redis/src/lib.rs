//! The Redis store: single node, Sentinel and Cluster.
