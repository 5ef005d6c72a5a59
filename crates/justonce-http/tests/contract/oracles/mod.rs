//! What must hold for any two requests, said without the code of the layer. The fuzz targets
//! include these files too.

pub(crate) mod callers;
pub(crate) mod paths;
