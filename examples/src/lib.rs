//! Small programs that show Justonce at work; see `examples/`.
