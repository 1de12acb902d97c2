//! From the tree of a file to a [`Config`](crate::model::Config): what concerns several options at once.

pub(crate) mod file;
pub(crate) mod server;
mod transport;
pub(crate) mod versions;
