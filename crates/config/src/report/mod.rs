//! Problems: collecting them, hiding secrets in their lines, and laying them out.

pub(crate) mod harmless;
mod lexical;
pub(crate) mod mask;
pub(crate) mod problem;
mod render;
