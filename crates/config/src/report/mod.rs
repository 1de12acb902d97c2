//! Problems: collecting them, hiding secrets in the lines that they show, and laying them out.

pub(crate) mod harmless;
mod lexical;
pub(crate) mod mask;
pub(crate) mod problem;
mod render;
